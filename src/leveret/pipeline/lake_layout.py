"""The directories of a lake, and the files that belong to its tables. Does not import Spark.

    bronze/<table>/            messages as received: a file sink of Spark, by stream and date
        _spark_metadata/       its manifest: the list of committed files
        _merged/current.json   compaction: the merged files, and the files that they replace
    silver/<table>/            decoded messages; `_schema.json` is the schema of all files
    bad/<table>/               messages that could not be decoded
    gold/<table>/              aggregates
    _checkpoints/<table>/      the progress of archiving

A table holds a stream, or all partitions of a super stream. `current.json` is replaced atomically,
so a reader sees either the small files or the merged files, never both.
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
CURSOR: Final = "archive"  # the broker shows the position of an archive under this name


@dataclass
class Merged:
    """The state of compaction of a table: `files` replace the files in `replaced`."""

    generation: int = 0
    files: list[str] = field(default_factory=list)  # paths relative to the table's folder
    replaced: dict[str, int] = field(default_factory=dict)  # path -> time in ms since 1970
    removed: list[str] = field(default_factory=list)  # replaced and deleted


class Lake:
    """A directory with tables of messages."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folder(self, layer: str, table: str) -> Path:
        return self.path / layer / table

    def checkpoint(self, table: str) -> Path:
        return self.path / "_checkpoints" / table

    def tables(self, layer: str) -> list[str]:
        """Return the tables of a layer."""
        folder = self.path / layer
        return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []

    def require(self, layer: str, table: str) -> Path:
        """Return the folder of a table; raise NotFoundError if there is no such table."""
        folder = self.folder(layer, table)
        if not self.path.is_dir():
            raise NotFoundError(f"there is no lake: {self.path} is not a directory")
        if not folder.is_dir():
            there = ", ".join(self.tables(layer)) or "none"
            raise NotFoundError(f"the lake has no {layer} table '{table}': there are {there}")
        return folder

    def bronze_files(self, table: str) -> list[Path]:
        """Return the files of a bronze table: those of the manifest, or the merged ones instead."""
        folder = self.require(BRONZE, table)
        merged = read_merged(folder)
        gone = set(merged.replaced) | set(merged.removed)
        written = [path for path in manifest_files(folder) if path not in gone]
        return [folder / path for path in (*written, *merged.files)]


def table_name(vhost: str, name: str) -> str:
    """Return the table of a stream: its name, after its vhost if that is not `/`."""
    own = quote(name, safe=" ")
    return own if vhost == "/" else f"{quote(vhost, safe='')}@{own}"


def vhost_and_stream(table: str) -> tuple[str, str]:
    """Return the vhost and the stream of a table: `table_name` reversed."""
    vhost, at, own = table.partition("@")
    return (unquote(vhost), unquote(own)) if at else ("/", unquote(table))


def manifest_files(folder: Path) -> list[str]:
    """Return the files that Spark's file sink has committed, as paths relative to its folder.

    The manifest has a file for each batch; every tenth one also lists all earlier batches. Spark
    writes it under another name and renames it, so a file that exists is complete.
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
    """Return a path of the manifest relative to the table's folder, even if the lake has moved."""
    path = unquote(urlsplit(uri).path) if "://" in uri or uri.startswith("file:") else uri
    tail = path.split(f"/{BRONZE}/{folder.name}/", 1)
    return tail[1] if len(tail) == 2 else os.path.relpath(path, folder)


def read_merged(folder: Path) -> Merged:
    path = folder / "_merged" / "current.json"
    return Merged(**json.loads(path.read_text())) if path.is_file() else Merged()


def write_merged(folder: Path, merged: Merged) -> None:
    replace_file(folder / "_merged" / "current.json", json.dumps(vars(merged), indent=1))


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_state(path: Path) -> dict[str, Any]:
    """Read a small JSON object; an empty one if the file does not exist yet."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found
