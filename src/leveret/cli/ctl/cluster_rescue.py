"""Carry out `leveret ctl cluster rescue`.

Separate from cluster.py, because storage takes longer to import than most commands run.
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer

from leveret.cli.shared.options import one_line_on_failure, print_json
from leveret.cli.shared.output import format_time
from leveret.errors import StorageError
from leveret.runtime.rescue import Rescue, RescueReport


def rescue_directory(data: Path, *, is_sure: bool, as_json: bool) -> None:
    """Say what may be lost, ask, and make a cluster of one."""
    with one_line_on_failure():
        rescue = Rescue(data)
        try:
            if not as_json:
                for line in _warning(rescue.report):
                    typer.echo(line)
            if not is_sure:
                _ask()
            cluster = rescue.run()
        finally:
            rescue.close()
    report = rescue.report
    if as_json:
        print_json({**asdict(report), "new_cluster": cluster})
        return
    typer.echo(f"node {report.node} is the cluster {cluster}, alone: start it again")
    typer.echo("then start the other nodes with empty data directories, and they join")


def _ask() -> None:
    """Ask on a terminal. Raise StorageError if there is none, and Abort at a no."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise StorageError("nothing was changed: run it again with --yes to do it")
    typer.confirm("make this node a cluster of one?", abort=True)


def _warning(report: RescueReport) -> Iterator[str]:
    yield (
        f"node {report.node} of cluster {report.cluster} has blocks up to {report.last_block} of "
        f"term {report.last_term}, written at {format_time(report.last_ms)} UTC"
    )
    if report.lost:
        yield f"it has lost blocks: {report.lost}"
    yield "messages that the cluster has confirmed after that block are lost"
    if report.others:
        names = ", ".join(report.others)
        yield (
            f"these nodes are taken out of the cluster, and are refused if they come back with "
            f"their old directories: {names}"
        )
    yield (
        "if the directory of another node is left, rescue the one with the highest term, and among "
        "these the one with the highest block"
    )
