"""`leveret ctl dump` and `leveret ctl repair`: the files of a data directory, without a broker."""

from pathlib import Path
from typing import Annotated

import typer

from leveret.cli.shared.options import Json


def dump(
    file: Annotated[Path, typer.Argument(help="A file of a data directory.")],
    as_json: Json = False,
    limit: Annotated[int | None, typer.Option("--limit", help="Print so many entries.")] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="Print bodies too.")] = False,
) -> None:
    """Print a file of a data directory, record by record."""
    from leveret.cli.ctl.files_work import show_file

    show_file(file, as_json=as_json, limit=limit, bodies=bodies)


def repair(
    data: Annotated[Path, typer.Option("--data", help="The data directory of a stopped node.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is damaged; exit code 1 if it is.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Mend a data directory whose log is damaged; damaged bytes go to files beside it."""
    from leveret.cli.ctl.files_work import mend_directory

    is_sound = mend_directory(data, dry_run=dry_run, as_json=as_json)
    raise typer.Exit(1 if dry_run and not is_sound else 0)
