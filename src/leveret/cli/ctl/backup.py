"""`leveret ctl backup` and `leveret ctl restore`.

A backup is written to FILE.part and renamed when it is complete. Before a backup is sent to a
broker, the whole file is read and checked once, so that a damaged file changes nothing there.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from leveret.cli.shared.management import ManagementClient, quote_path
from leveret.cli.shared.options import (
    DEFAULT_URL,
    Json,
    Password,
    Url,
    User,
    Vhost,
    one_line_on_failure,
    print_json,
)
from leveret.errors import CorruptionError
from leveret.storage.archive import ArchiveReader
from leveret.storage.backup import restore_node

_PIECE_BYTES: Final = 1024 * 1024


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write the backup.")],
    queue: Annotated[str | None, typer.Option("--queue", help="Back up only this queue.")] = None,
    vhost: Vhost = "/",
    url: Url = DEFAULT_URL,
    user: User = None,
    password: Password = None,
    as_json: Json = False,
) -> None:
    """Write a backup of a running broker, or of one queue."""
    path = "/api/backup"
    if queue is not None:
        path += f"/{quote_path(vhost)}/{quote_path(queue)}"
    with one_line_on_failure():
        reader, size = _write(file, ManagementClient(url, user, password).stream(path))
    _print(as_json, f"{file}: {_describe(reader)}, {size} bytes", {"bytes": size, **reader.notes})


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


def restore(
    file: Annotated[Path, typer.Argument(help="The backup file.")],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Restore into this new data directory. The node must be stopped."
        ),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="Restore this queue into a running broker.")
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", help="Restore into a queue of this name instead.")
    ] = None,
    vhost: Vhost = "/",
    url: Url = DEFAULT_URL,
    user: User = None,
    password: Password = None,
    as_json: Json = False,
) -> None:
    """Restore a node into an empty data directory, or a queue into a running broker."""
    if (data is None) == (queue is None):
        typer.echo("leveret ctl restore: give either --data or --queue", err=True)
        raise typer.Exit(2)
    with one_line_on_failure():
        if data is not None:
            with file.open("rb") as backup_file:
                facts = restore_node(backup_file, data)
            _print(as_json, f"{file} is restored into {data} ({facts['kind']})", facts)
            return
        assert queue is not None
        _require_backup_of(file, queue)
        path = f"/api/restore/{quote_path(vhost)}/{quote_path(into or queue)}"
        with file.open("rb") as backup_file:
            pieces = _with_progress(_read_pieces(backup_file))
            found = ManagementClient(url, user, password).send(path, pieces)
        _print(as_json, f"{found['messages']} messages restored into {found['queue']}", found)


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
