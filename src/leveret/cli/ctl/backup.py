"""`leveret ctl backup` and `leveret ctl restore`.

A backup is written beside its name and gets it when it is whole. Before a backup is sent to a
broker it is read once from end to end, so that a damaged one changes nothing there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from leveret.cli.shared.management import Broker, in_path
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
    queue: Annotated[str | None, typer.Option("--queue", help="This queue alone.")] = None,
    vhost: Vhost = "/",
    url: Url = DEFAULT_URL,
    user: User = None,
    password: Password = None,
    as_json: Json = False,
) -> None:
    """Back up a running broker, or one of its queues, as it is now."""
    path = "/api/backup"
    if queue is not None:
        path += f"/{in_path(vhost)}/{in_path(queue)}"
    with one_line_on_failure():
        reader, size = _write(file, Broker(url, user, password).stream(path))
    _say(as_json, f"{file} holds {_what(reader)} in {size} bytes", {"bytes": size, **reader.notes})


def _write(file: Path, pieces: Iterator[bytes]) -> tuple[ArchiveReader, int]:
    """Write a backup and check it on the way; it has its name only when it is whole."""
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
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return reader, size


def restore(
    file: Annotated[Path, typer.Argument(help="The backup.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="Make this data directory of it; the node rests.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="Publish it into this queue of a running broker.")
    ] = None,
    into: Annotated[str | None, typer.Option("--into", help="Give the queue another name.")] = None,
    vhost: Vhost = "/",
    url: Url = DEFAULT_URL,
    user: User = None,
    password: Password = None,
    as_json: Json = False,
) -> None:
    """Restore a backup: into an empty data directory, or a queue into a running broker."""
    if (data is None) == (queue is None):
        typer.echo("leveret ctl restore: give either --data or --queue", err=True)
        raise typer.Exit(2)
    with one_line_on_failure():
        if data is not None:
            with file.open("rb") as backup_file:
                facts = restore_node(backup_file, data)
            _say(as_json, f"{data} holds the {facts['kind']} of {file}", facts)
            return
        assert queue is not None
        _check(file, queue)
        path = f"/api/restore/{in_path(vhost)}/{in_path(into or queue)}"
        with file.open("rb") as backup_file:
            pieces = _with_progress(_pieces(backup_file))
            found = Broker(url, user, password).send(path, pieces)
        _say(as_json, f"{found['messages']} messages restored into {found['queue']}", found)


def _check(file: Path, queue: str) -> None:
    """The file must be a whole backup of that queue."""
    reader = ArchiveReader()
    with file.open("rb") as backup_file:
        for piece in _pieces(backup_file):
            reader.feed(piece)
    reader.finish()
    if reader.facts.get("kind") != "queue":
        raise CorruptionError(f"{file} is not the backup of a queue: restore it by --data")
    if reader.facts.get("queue") != queue:
        raise CorruptionError(f"{file} is the backup of queue {reader.facts.get('queue')}")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _with_progress(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces, and on a terminal how many bytes there were."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as p:
        task = p.add_task("bytes", total=None)
        for piece in pieces:
            p.update(task, advance=len(piece))
            yield piece


def _what(reader: ArchiveReader) -> str:
    if reader.facts.get("kind") == "queue":
        text = f"{reader.notes.get('messages')} messages of queue {reader.facts.get('queue')}"
        unreadable = reader.notes.get("unreadable")
        return f"{text} ({unreadable} could not be read)" if unreadable else text
    return f"node {reader.facts.get('node')}"


def _say(as_json: bool, text: str, found: object) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo(text)
