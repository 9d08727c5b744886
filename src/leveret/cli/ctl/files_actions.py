"""Carry out `leveret ctl dump` and `leveret ctl repair`.

Separate from files.py, because storage and engine take longer to import than most commands run.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import typer

from leveret.cli.shared.options import one_line_on_failure, print_json
from leveret.definitions.definitions import attach_definitions
from leveret.errors import StorageError
from leveret.storage.disk import Disk
from leveret.storage.dump import UNKNOWN, Entry
from leveret.storage.dump import dump as dump_file
from leveret.storage.repair import RepairReport
from leveret.storage.repair import repair as repair_directory

_SUFFIXES: Final = (".log", ".checkpoint", ".segment")  # every data directory has one of these


def dump_data_file(file: Path, *, as_json: bool, limit: int | None, bodies: bool) -> None:
    with one_line_on_failure():
        entries = dump_file(file.read_bytes(), file.name, bodies=bodies)
        for entry in islice(entries, limit):
            if entry.kind == UNKNOWN:
                raise StorageError(f"{file} is {entry.fields['fault']}")
            typer.echo(_as_json(entry) if as_json else entry.line())


def _as_json(entry: Entry) -> str:
    fields = {**entry.fields, "offset": entry.offset, "kind": entry.kind}
    return json.dumps(fields, default=_plain)


def _plain(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def repair_data(data: Path, *, dry_run: bool, as_json: bool) -> bool:
    """Print the damage and return True if there is none."""
    with one_line_on_failure():
        if not data.is_dir():
            raise FileNotFoundError(2, "no such directory", str(data))
        if not any(path.suffix in _SUFFIXES for path in data.iterdir()):
            raise FileNotFoundError(2, "not the data directory of a node", str(data))
        report = repair_directory(Disk(data), dry_run=dry_run, prepare=attach_definitions)
    if as_json:
        print_json(_fields(report))
    else:
        for line in report.lines():
            typer.echo(line)
    return report.is_whole


def _fields(report: RepairReport) -> dict[str, object]:
    return {
        "sound": report.is_whole,
        "damage": list(_ranges(report)),
        "missing": report.missing,
        "segments": report.segments,
        "queues": [vars(loss) for loss in report.losses],
        "notes": report.notes,
        "side_files": report.side_files,
    }


def _ranges(report: RepairReport) -> Iterator[dict[str, object]]:
    for name, ranges in report.ranges.items():
        for start, end in ranges:
            yield {"file": name, "start": start, "end": end}
