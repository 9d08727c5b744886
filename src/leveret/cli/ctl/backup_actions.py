"""Carry out `leveret ctl backup` and `leveret ctl restore`.

Separate from backup.py, because storage takes longer to import than most commands run.

A backup is written to FILE.part and renamed when it is complete. Before a backup is sent to a
broker, the whole file is read and checked once, so that a damaged file changes nothing there.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import typer

from leveret.cli.shared.management import ManagementClient
from leveret.cli.shared.options import one_line_on_failure, print_json
from leveret.errors import CorruptionError
from leveret.storage.archive import ArchiveReader
from leveret.storage.backup import restore_node

_PIECE_BYTES: Final = 1024 * 1024


def back_up(broker: ManagementClient, path: str, file: Path, *, as_json: bool) -> None:
    """Write the backup that the broker sends for this path."""
    with one_line_on_failure():
        reader, size = _write(file, broker.stream(path))
    _print(as_json, f"{file}: {_describe(reader)}, {size} bytes", {"bytes": size, **reader.notes})


def restore_directory(file: Path, data: Path, *, as_json: bool) -> None:
    """Restore the backup of a node into a new data directory."""
    with one_line_on_failure():
        with file.open("rb") as backup_file:
            facts = restore_node(backup_file, data)
        _print(as_json, f"{file} is restored into {data} ({facts['kind']})", facts)


def restore_queue(
    broker: ManagementClient, path: str, file: Path, queue: str, *, as_json: bool
) -> None:
    """Send the backup of a queue to this path of a broker."""
    with one_line_on_failure():
        _require_backup_of(file, queue)
        with file.open("rb") as backup_file:
            pieces = _with_progress(_read_pieces(backup_file))
            found = broker.send(path, pieces)
        _print(as_json, f"{found['messages']} messages restored into {found['queue']}", found)


def _write(file: Path, pieces: Iterator[bytes]) -> tuple[ArchiveReader, int]:
    """Write and check a backup. The file gets its name only when it is complete."""
    reader = ArchiveReader()
    size = 0
    unfinished = file.with_name(file.name + ".part")
    try:
        with unfinished.open("wb") as out:
            for piece in _with_progress(pieces):
                out.write(piece)
                reader.feed(piece)
                size += len(piece)
            reader.finish()
            out.flush()
            os.fsync(out.fileno())  # the name must not survive a power loss without the content
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return reader, size


def _require_backup_of(file: Path, queue: str) -> None:
    """Raise CorruptionError unless the file is a complete backup of that queue."""
    reader = ArchiveReader()
    with file.open("rb") as backup_file:
        for piece in _read_pieces(backup_file):
            reader.feed(piece)
    reader.finish()
    if reader.facts.get("kind") != "queue":
        raise CorruptionError(f"{file} is not the backup of a queue: restore it with --data")
    if reader.facts.get("queue") != queue:
        raise CorruptionError(f"{file} is the backup of queue {reader.facts.get('queue')}")


def _read_pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _with_progress(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces and show the number of bytes, if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as p:
        task = p.add_task("bytes", total=None)
        for piece in pieces:
            p.update(task, advance=len(piece))
            yield piece


def _describe(reader: ArchiveReader) -> str:
    if reader.facts.get("kind") == "queue":
        text = f"{reader.notes.get('messages')} messages of queue {reader.facts.get('queue')}"
        unreadable = reader.notes.get("unreadable")
        return f"{text} ({unreadable} could not be read)" if unreadable else text
    return f"node {reader.facts.get('node')}"


def _print(as_json: bool, text: str, found: object) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo(text)
