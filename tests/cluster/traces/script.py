"""Reads trace files, runs them, and compares."""

import difflib
from pathlib import Path

from tests.cluster.traces.theatre import Theatre

FOLDER = Path(__file__).parent
MARK = "----"


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def played(text: str) -> str:
    """The same trace with what its commands print now."""
    theatre = Theatre()
    return "\n\n".join(_block(theatre, block) for block in text.strip().split("\n\n")) + "\n"


def _block(theatre: Theatre, block: str) -> str:
    lines = block.split("\n")
    if MARK not in lines:
        return block
    commands = lines[: lines.index(MARK)]
    out: list[str] = []
    for command in commands:
        out += theatre.run(command)
    return "\n".join([*commands, MARK, *(out or ["ok"])])


def difference(name: str) -> str:
    """How a run of a trace differs from what its file says; empty if it does not."""
    text = (FOLDER / f"{name}.txt").read_text()
    lines = difflib.unified_diff(
        text.splitlines(), played(text).splitlines(), "expected", "found", lineterm="", n=6
    )
    return "\n".join(lines)


def write(name: str) -> None:
    path = FOLDER / f"{name}.txt"
    path.write_text(played(path.read_text()))
