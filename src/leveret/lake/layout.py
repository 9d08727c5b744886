"""The directories of a lake, and the files that belong to its tables. Does not import Spark.

    bronze/<table>/            messages as received: a file sink of Spark, by stream and date
        _spark_metadata/       its manifest: the list of committed files
        _merged/current.json   compaction: the merged files, and the files that they replace
        _delta_log/            instead of both, if the table is a Delta table (`delta`)
        _staging/              the batch that is being written to a Delta table
    silver/<table>/            decoded messages; `_schema.json` is the schema of all files
    bad/<table>/               messages that could not be decoded
    gold/<table>/              aggregates
    _checkpoints/<table>/      the progress of archiving, which a Delta table has in its log; locks
    _checkpoints/run.lock      the lock of a run over several tables
    reports/                   pages of reports by day

A table holds a stream, or all partitions of a super stream. `current.json` is replaced atomically,
so a reader sees either the small files or the merged files, never both.

The *position* of a table is the next offset of each stream: its files have all messages before it,
and none from it on. A reader of lake and broker begins at the broker with that offset.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.lake import delta

BRONZE: Final = "bronze"
SILVER: Final = "silver"
BAD: Final = "bad"
GOLD: Final = "gold"
LAYERS: Final = (BRONZE, SILVER, BAD, GOLD)
MANIFEST: Final = "_spark_metadata"
COMPACT: Final = ".compact"
REFINED: Final = "_refined.json"  # in silver: messages that were refined, by stream and date
QUARANTINED: Final = "_quarantined.json"  # in bad: messages there, by stream and date
CURSOR: Final = "archive"  # the broker shows the position of an archive under this name


@dataclass
class Merged:
    """The state of compaction of a table: `files` replace the files in `replaced`."""

    generation: int = 0
    files: list[str] = field(default_factory=list)  # paths relative to the table's folder
    replaced: dict[str, int] = field(default_factory=dict)  # path -> time in ms since 1970
    removed: list[str] = field(default_factory=list)  # replaced and deleted


@dataclass(frozen=True)
class Manifest:
    """The committed batches of Spark's file sink."""

    last_batch: int  # -1: none
    files: list[str]  # paths relative to the table's folder


@dataclass(frozen=True)
class History:
    """The messages of a bronze table at one moment."""

    version: int  # the last batch in the manifest, or the version of a Delta table; -1: none
    files: list[Path]
    position: dict[str, int]  # by stream, the offset after the last message in the files


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

    def streams(self, vhost: str) -> dict[str, str]:
        """Return the bronze tables of a vhost, and the stream of each."""
        found = {table: vhost_and_stream(table) for table in self.tables(BRONZE)}
        return {table: stream for table, (owner, stream) in found.items() if owner == vhost}

    def require_there(self) -> None:
        """Raise NotFoundError if the lake does not exist."""
        if not self.path.is_dir():
            raise NotFoundError(f"there is no lake: {self.path} is not a directory")

    def require(self, layer: str, table: str) -> Path:
        """Return the folder of a table; raise NotFoundError if there is no such table."""
        self.require_there()
        folder = self.folder(layer, table)
        if not folder.is_dir():
            there = ", ".join(self.tables(layer)) or "none"
            raise NotFoundError(f"the lake has no {layer} table '{table}': there are {there}")
        return folder

    def bronze_files(self, table: str) -> list[Path]:
        """Return the valid files of a bronze table: by its Delta log, or by manifest and merges."""
        if delta.is_delta(folder := self.require(BRONZE, table)):
            return delta.table_files(delta.open_table(folder), folder)
        return self._files(table)[0]

    def history(self, table: str) -> History:
        """Return the files of a bronze table and the offsets at which they end.

        Raise PreconditionFailedError if the checkpoint is missing, which has the offsets of a table
        of Parquet files.
        """
        if delta.is_delta(folder := self.require(BRONZE, table)):
            found = delta.open_table(folder)
            position = delta.table_position(found, vhost_and_stream(table)[1])
            return History(found.version(), delta.table_files(found, folder), position)
        files, last_batch = self._files(table)
        position = self._position(table, last_batch) if last_batch >= 0 else {}
        return History(last_batch, files, position)

    def archived_at_s(self, table: str, history: History) -> float | None:
        """Return when the newest batch of a history was committed; None if nobody knows."""
        folder = self.folder(BRONZE, table)
        if delta.is_delta(folder):
            return delta.archived_at_s(folder, history.version)
        for name in (str(history.version), f"{history.version}{COMPACT}"):
            if (path := folder / MANIFEST / name).is_file():
                return path.stat().st_mtime
        return None

    def _files(self, table: str) -> tuple[list[Path], int]:
        """Return the files of a bronze table, and the last batch that they hold.

        `current.json` is read before the manifest. In the other order, merged files could hold
        messages of a batch that the manifest did not have yet.
        """
        folder = self.require(BRONZE, table)
        merged = read_merged(folder)
        manifest = read_manifest(folder)
        gone = set(merged.replaced) | set(merged.removed)
        written = [path for path in manifest.files if path not in gone]
        return [folder / path for path in (*written, *merged.files)], manifest.last_batch

    def _position(self, table: str, batch: int) -> dict[str, int]:
        """Return the offsets at which a batch ends. Spark writes them before the batch begins."""
        checkpoint = self.checkpoint(table) / BRONZE
        try:
            return batch_ends(checkpoint, batch)
        except FileNotFoundError as fault:
            text = f"{fault.filename} is missing: without it nobody knows which offsets the lake"
            raise PreconditionFailedError(f"{text} has; read the bronze table alone") from None


def table_name(vhost: str, name: str) -> str:
    """Return the table of a stream: its name, after its vhost if that is not `/`."""
    own = quote(name, safe=" ")
    return own if vhost == "/" else f"{quote(vhost, safe='')}@{own}"


def vhost_and_stream(table: str) -> tuple[str, str]:
    """Return the vhost and the stream of a table: `table_name` reversed."""
    vhost, at, own = table.partition("@")
    return (unquote(vhost), unquote(own)) if at else ("/", unquote(table))


def batch_ends(checkpoint: Path, batch: int) -> dict[str, int]:
    """Return the offsets at which a batch of a query ends, from the query's checkpoint."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    found: dict[str, int] = json.loads(lines[-1])
    return found


def read_manifest(folder: Path) -> Manifest:
    """Return the batches and files that Spark's file sink has committed.

    The manifest has a file for each batch; every tenth one also lists all earlier batches. Spark
    writes it under another name and renames it, so a file that exists is complete.
    """
    names = [path.name for path in (folder / MANIFEST).glob("[0-9]*")]
    compacts = [int(name.removesuffix(COMPACT)) for name in names if name.endswith(COMPACT)]
    last = max(compacts, default=-1)
    later = sorted(number for number in (int(n) for n in names if n.isdigit()) if number > last)
    chosen = [f"{last}{COMPACT}"] if last >= 0 else []
    chosen += [str(number) for number in later]
    found: list[str] = []
    for name in chosen:
        lines = (folder / MANIFEST / name).read_text().splitlines()[1:]
        found += [_from_folder(json.loads(line)["path"], folder) for line in lines if line]
    return Manifest(max([last, *later]), found)


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
