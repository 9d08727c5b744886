"""`leveret ctl dump` and `leveret ctl repair`: read and repair the files of a stopped broker."""

from pathlib import Path
from typing import Annotated

import typer

from leveret.cli.shared.options import Json


def dump(
    file: Annotated[Path, typer.Argument(help="A file of a data directory.")],
    as_json: Json = False,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Print at most this number of entries.")
    ] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="Also print message bodies.")] = False,
) -> None:
    """Print the records of a file in a data directory."""
    from leveret.cli.ctl.files_actions import dump_data_file

    dump_data_file(file, as_json=as_json, limit=limit, bodies=bodies)


def repair(
    data: Annotated[Path, typer.Option("--data", help="The data directory of a stopped node.")],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only report damage; the exit code is 1 if there is any."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Repair a data directory with a damaged log. Damaged bytes are kept in separate files."""
    from leveret.cli.ctl.files_actions import repair_data

    is_sound = repair_data(data, dry_run=dry_run, as_json=as_json)
    raise typer.Exit(1 if dry_run and not is_sound else 0)
