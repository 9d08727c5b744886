"""The documents as data: pages, their headings, links, code blocks and words in code.

Owns the reading of Markdown as far as this project uses it: fences, indented blocks, code spans,
links and headings. Knows nothing of what the words mean; the tests beside it do.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
_SPAN: Final = re.compile(r"``(.+?)``|`([^`\n]+(?:\n[^`\n]+)?)`")
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A piece of code that stands by itself."""

    page: str
    line: int
    language: str  # of the fence; empty where it says none, or where there is no fence
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """One document."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def blocks(self) -> list[Block]:
        fenced = [self._block(m.start(), m[2], _dedented(m[3], len(m[1]))) for m in self._fences()]
        rest = _FENCE.sub(lambda m: "\n" * m[0].count("\n"), self.text)
        plain = [m for m in _INDENTED.finditer(rest) if _is_code(rest, m.start())]
        return fenced + [self._block(-1, "", _dedented(m[0], 4)) for m in plain]

    def _fences(self) -> list[re.Match[str]]:
        return list(_FENCE.finditer(self.text))

    def _block(self, start: int, language: str, text: str) -> Block:
        line = self.text.count("\n", 0, start) + 2 if start >= 0 else 0
        return Block(self.name, line, language, text)

    @cached_property
    def prose(self) -> str:
        """The text without what is fenced."""
        return _FENCE.sub("", self.text)

    @cached_property
    def spans(self) -> list[str]:
        """Words in code within a sentence, a table or a heading."""
        return [(m[1] or m[2]).replace("\n", " ").strip() for m in _SPAN.finditer(self.prose)]

    @cached_property
    def links(self) -> list[str]:
        return [m[1] for m in _LINK.finditer(_SPAN.sub("`x`", self.prose))]

    @cached_property
    def anchors(self) -> set[str]:
        """What a link may name behind its #: headings, as hosts of Markdown make names of them."""
        return {_anchor(title) for title in _HEADING.findall(self.prose)}


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def _dedented(text: str, width: int) -> str:
    return "".join(line[width:] if line.strip() else "\n" for line in text.splitlines(True))


def _is_code(text: str, start: int) -> bool:
    """Whether an indented stretch follows an empty line, and is no part of a list."""
    before = text[:start]
    paragraphs = before.rstrip("\n").rsplit("\n\n", 1)[-1].lstrip()
    return before.endswith("\n\n") and not re.match(r"[-*]|\d+\.", paragraphs)


def pages() -> list[Page]:
    return [Page(path) for path in PAGES]


def blocks(*languages: str) -> list[Block]:
    return [block for page in pages() for block in page.blocks if block.language in languages]
