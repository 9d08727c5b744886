"""`leveret ctl dump` and `leveret ctl repair`: the files of a data directory, without a broker."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from leveret.cli.options import Json, one_line_on_failure, print_json
from leveret.definitions.book import open_book
from leveret.storage.disk import Disk
from leveret.storage.dump import Entry
from leveret.storage.dump import dump as dump_file
from leveret.storage.repair import Report
from leveret.storage.repair import repair as repair_directory


def dump(
    file: Annotated[Path, typer.Argument(help="A file of a data directory.")],
    as_json: Json = False,
    limit: Annotated[int | None, typer.Option("--limit", help="Print so many entries.")] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="Print bodies too.")] = False,
) -> None:
    """Print a file of a data directory, record by record."""
    with one_line_on_failure():
        entries = dump_file(file.read_bytes(), file.name, bodies=bodies)
        for entry in islice(entries, limit):
            typer.echo(_as_json(entry) if as_json else entry.line())


def _as_json(entry: Entry) -> str:
    fields = {**entry.fields, "offset": entry.offset, "kind": entry.kind}
    return json.dumps(fields, default=_plain)


def _plain(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def repair(
    data: Annotated[Path, typer.Option("--data", help="The data directory of a stopped node.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is damaged; exit code 1 if it is.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Mend a data directory whose log is damaged; damaged bytes go to files beside it."""
    with one_line_on_failure():
        if not data.is_dir():
            raise FileNotFoundError(2, "no such directory", str(data))
        report = repair_directory(Disk(data), dry_run=dry_run, prepare=open_book)
    if as_json:
        print_json(_fields(report))
    else:
        for line in report.lines():
            typer.echo(line)
    raise typer.Exit(1 if dry_run and not report.is_sound else 0)


def _fields(report: Report) -> dict[str, object]:
    return {
        "sound": report.is_sound,
        "damage": list(_ranges(report)),
        "queues": [vars(loss) for loss in report.losses],
        "notes": report.notes,
        "side_files": report.side_files,
    }


def _ranges(report: Report) -> Iterator[dict[str, object]]:
    for name, ranges in report.ranges.items():
        for start, end in ranges:
            yield {"file": name, "start": start, "end": end}
