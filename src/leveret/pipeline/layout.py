"""The layout of a lake, and which files of it count. Imports nothing of Spark.

    bronze/<table>/            messages as they were: a file sink of Spark, by stream and date
        _spark_metadata/       its manifest: only files in it count
        _merged/current.json   what compaction merged: files that stand for others
    silver/<table>/            decoded messages; `_schema.json` is the schema of all of it
    bad/<table>/               messages that could not be decoded
    gold/<table>/              aggregates
    _checkpoints/<table>/      how far archiving is

A table is a stream, or the partitions of a super stream. `current.json` is replaced as a whole:
what it calls merged stands for what it calls replaced, and readers see one state or the other.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from leveret.errors import NotFoundError

BRONZE: Final = "bronze"
SILVER: Final = "silver"
BAD: Final = "bad"
GOLD: Final = "gold"
LAYERS: Final = (BRONZE, SILVER, BAD, GOLD)
PARTITIONS: Final = ("stream", "date")
MANIFEST: Final = "_spark_metadata"
COMPACT: Final = ".compact"


@dataclass
class Merged:
    """What compaction has done to a table: `files` stand for those in `replaced`."""

    generation: int = 0
    files: list[str] = field(default_factory=list)  # from the table's folder
    replaced: dict[str, int] = field(default_factory=dict)  # path -> when, ms since 1970
    removed: list[str] = field(default_factory=list)  # replaced, and deleted since


class Lake:
    """A directory with tables of messages."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folder(self, layer: str, table: str) -> Path:
        return self.path / layer / table

    def checkpoint(self, table: str) -> Path:
        return self.path / "_checkpoints" / table

    def tables(self, layer: str) -> list[str]:
        """The tables of a layer."""
        folder = self.path / layer
        return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []

    def require(self, layer: str, table: str) -> Path:
        """The folder of a table that exists; NotFoundError."""
        folder = self.folder(layer, table)
        if not self.path.is_dir():
            raise NotFoundError(f"there is no lake: {self.path} is not a directory")
        if not folder.is_dir():
            there = ", ".join(self.tables(layer)) or "none"
            raise NotFoundError(f"the lake has no {layer} table '{table}': there are {there}")
        return folder

    # Bronze

    def bronze_files(self, table: str) -> list[Path]:
        """The files that count: those of the manifest, with merged ones in place of theirs."""
        folder = self.require(BRONZE, table)
        merged = read_merged(folder)
        gone = set(merged.replaced) | set(merged.removed)
        written = [path for path in manifest(folder) if path not in gone]
        return [folder / path for path in (*written, *merged.files)]


def table_name(vhost: str, name: str) -> str:
    """The name of the table of a stream: its own, after its vhost where that is not `/`."""
    own = quote(name, safe=" ")
    return own if vhost == "/" else f"{quote(vhost, safe='')}@{own}"


def manifest(folder: Path) -> list[str]:
    """The files that a file sink of Spark has committed, as paths from its folder.

    Each batch is a file of the manifest, and each tenth has those before it too. Batches are
    written beside and renamed: one that is there is whole.
    """
    names = [path.name for path in (folder / MANIFEST).glob("[0-9]*")]
    compacts = [int(name.removesuffix(COMPACT)) for name in names if name.endswith(COMPACT)]
    last = max(compacts, default=-1)
    chosen = [f"{last}{COMPACT}"] if last >= 0 else []
    chosen += [str(n) for n in sorted(int(n) for n in names if n.isdigit()) if n > last]
    found: list[str] = []
    for name in chosen:
        lines = (folder / MANIFEST / name).read_text().splitlines()[1:]
        found += [_from_folder(json.loads(line)["path"], folder) for line in lines if line]
    return found


def _from_folder(uri: str, folder: Path) -> str:
    """The path of a file in the manifest, from the table's folder, wherever that is now."""
    path = unquote(urlsplit(uri).path) if "://" in uri or uri.startswith("file:") else uri
    tail = path.split(f"/{BRONZE}/{folder.name}/", 1)
    return tail[1] if len(tail) == 2 else os.path.relpath(path, folder)


def read_merged(folder: Path) -> Merged:
    path = folder / "_merged" / "current.json"
    return Merged(**json.loads(path.read_text())) if path.is_file() else Merged()


def write_merged(folder: Path, merged: Merged) -> None:
    replace(folder / "_merged" / "current.json", json.dumps(vars(merged), indent=1))


def replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_state(path: Path) -> dict[str, Any]:
    """A small JSON object of a table; empty where there is none yet."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found
