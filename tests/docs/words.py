"""What documents may name: commands and flags, settings, paths of the API, targets of make, files.

Each is read from where the program has it, so that a document is compared with the program and not
with a second list.
"""

import re
import shlex
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import typer

from leveret.cli.app import make_app
from leveret.config.settings import env_name, flag_name, options
from leveret.http.app import OPERATIONS
from tests.docs.pages import ROOT

APP = make_app("")

HELP: Final = {"--help", "-h"}
_COMMAND: Final = re.compile(r"(?:^|[\s(=`/])leveret (?=[a-z-])")
_ENDS: Final = re.compile(r"\s(?:#|\||;|&|>|<|\(|—|–)|\s{3,}|[)`]|…")
_ANY: Final = "{}"  # a part of a path that may be anything
_BRACED: Final = re.compile(r"\{[^}]*\}")


@dataclass(frozen=True)
class Command:
    """A command line of `leveret` as a document has it."""

    words: tuple[str, ...]
    flags: tuple[str, ...]


def commands_in(code: str) -> list[Command]:
    """Every call of `leveret` in a piece of code."""
    code = re.sub(r"\\\n\s*", " ", code)
    found = []
    for line in code.splitlines():
        for match in _COMMAND.finditer(line):
            rest = _ENDS.split(line[match.end() :], maxsplit=1)[0]
            parts = _parts(rest)
            flags = tuple(p.partition("=")[0] for p in parts if re.match(r"--?[a-z]", p))
            found.append(Command(tuple(p for p in parts if not p.startswith("-")), flags))
    return found


def _parts(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation that ends elsewhere
        return text.split()


@cache
def root() -> Any:
    """The command `leveret` with all others in it."""
    return typer.main.get_command(APP)


def fault_of(command: Command) -> str | None:
    """Why `leveret` would refuse it, as far as names go."""
    node, path = root(), "leveret"
    for word in command.words:
        inner = getattr(node, "commands", {})
        if not inner:
            break
        if word not in inner:
            return f"{path} has no command {word}"
        node, path = inner[word], f"{path} {word}"
    known = serve_flags() if path == "leveret serve" else flags_of(node)
    unknown = sorted(set(command.flags) - known - HELP)
    return f"{path} has no {', '.join(unknown)}" if unknown else None


def flags_of(node: Any) -> set[str]:
    return {name for p in node.params for name in (*p.opts, *p.secondary_opts)}


@cache
def serve_flags() -> frozenset[str]:
    flags = {"--config"}
    for name, option in options().items():
        flags.add(flag_name(name))
        if option.kind == "bool":
            flags.add(flag_name(f"no_{name}"))
    return frozenset(flags)


@cache
def all_flags() -> frozenset[str]:
    """Every flag of `leveret`, and of the project's own tools and tests."""
    found = set(serve_flags()) | HELP
    waiting = [root()]
    while waiting:
        node = waiting.pop()
        found |= flags_of(node)
        waiting += getattr(node, "commands", {}).values()
    for folder in ("tools", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            found.update(re.findall(r"[\"'](--[a-z][a-z0-9-]*)[\"']", path.read_text()))
    return frozenset(found)


@cache
def variables() -> frozenset[str]:
    """Every variable of the environment that the sources read."""
    found = {env_name(name) for name in options()}
    for path in [*(ROOT / "src").rglob("*.py"), ROOT / "setup.py"]:
        found.update(re.findall(r"[\"'](LEVERET_[A-Z_]+)[\"']", path.read_text()))
    return frozenset(found)


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def _routes() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Method and parts of the path of every operation."""
    return tuple((operation.method, _parts_of(operation.path)) for operation in OPERATIONS)


def _parts_of(path: str) -> tuple[str, ...]:
    return tuple(_BRACED.sub(_ANY, path.partition("?")[0]).strip("/").split("/"))


def is_served(path: str, method: str = "") -> bool:
    """Whether an operation answers the path; `…` and what is in braces stand for anything.

    A path that begins with `…` is the end of one.
    """
    parts = _parts_of(path)
    routes = [route for verb, route in _routes() if method in ("", verb)]
    if parts[0] == "…":
        parts = parts[1:]
        routes = [route[-len(parts) :] for route in routes]
        routes = [route for route in routes if route[0] == parts[0]]  # no name of a queue, say
    return any(_fits(route, parts) for route in routes)


def _fits(route: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    if parts[-1] == "…":  # and everything below it
        return _fits(route[: len(parts) - 1], parts[:-1])
    return len(route) == len(parts) and all(map(_same, route, parts))


def _same(mine: str, named: str) -> bool:
    return mine in (_ANY, named) or named == _ANY
