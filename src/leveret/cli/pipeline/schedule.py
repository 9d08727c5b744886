"""Commands `leveret pipeline run` and `status`: keep a lake up to date, and show how far it is."""

import signal
import threading
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from leveret.cli.pipeline.audit import parse_age
from leveret.cli.pipeline.options import lake_command, pipeline_command, show_progress
from leveret.cli.shared.output import Output
from leveret.errors import ConfigError, ResourceLockedError
from leveret.lake.layout import Lake
from leveret.pipeline.environment import Environment

EVERY_S_MIN: Final = 1.0
_COLUMNS: Final = "stream offset lag lag_s archived_at is_running files bytes leftovers".split()
_REFINED: Final = ["refined", "bad"]
_RESULTS: Final = "stream archived refined bad files_merged leftovers".split()


@pipeline_command
def run(
    environment: Environment,
    output: Output,
    streams: Annotated[
        list[str] | None,
        typer.Argument(help="Streams and super streams. Default: all that the lake has."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", help="Run again and again, after this time: 90s, 5m, 1h."),
    ] = None,
    no_refine: Annotated[
        bool, typer.Option("--no-refine", help="Do not decode messages into silver.")
    ] = False,
    no_compact: Annotated[
        bool, typer.Option("--no-compact", help="Do not merge small files.")
    ] = False,
) -> None:
    """Archive, refine and compact streams, once or on a schedule. One run at a time per lake."""
    every_s = None if every is None else _require_interval(every)
    names = list(streams or ()) or archived_streams(environment)
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import run as flows

    preflight.require_writable(environment.lake_path)
    preflight.require_broker(environment)
    for name in names:
        preflight.require_stream(environment, name)
    spark = environment.session("run")
    asked = flows.RunRequest(names, refines=not no_refine, compacts=not no_compact)
    stop = threading.Event()
    if every_s is not None:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    is_failed = False
    while not stop.is_set():
        is_failed = not _run_once(
            environment, output, spark, asked, is_repeated=every_s is not None
        )
        if every_s is None or stop.wait(every_s):
            break
    if is_failed:
        raise typer.Exit(1)


def _run_once(
    environment: Environment, output: Output, spark: Any, asked: Any, *, is_repeated: bool
) -> bool:
    """Run once and print the result; return True if every stream succeeded."""
    from leveret.pipeline.flows import run as flows

    try:
        with show_progress() as on_progress:
            done = flows.run_once(spark, environment, asked, on_progress)
    except ResourceLockedError as error:
        if not is_repeated:
            raise
        typer.echo(f"leveret pipeline: {error}", err=True)  # the next run may find the lake free
        return False
    output.table([asdict(each) for each in done.streams], _RESULTS)
    for each in done.streams:
        if each.fault is not None:
            typer.echo(f"leveret pipeline: {each.stream}: {each.fault}", err=True)
    return not done.faults


@lake_command
def status(environment: Environment, output: Output) -> None:
    """Show how far each table of the lake is behind its stream. Spark is not started."""
    from leveret.pipeline.lake_status import lake_status

    Lake(environment.lake_path).require_there()
    rows = [asdict(each) for each in lake_status(environment)]
    has_refined = any(row["refined"] is not None for row in rows)
    output.table(rows, [*_COLUMNS, *(_REFINED if has_refined else [])])


def archived_streams(environment: Environment) -> list[str]:
    """Return the streams of the vhost whose tables the lake has; raise ConfigError if none."""
    found = list(Lake(environment.lake_path).streams(environment.vhost).values())
    if not found:
        raise ConfigError("name a stream: the lake has no tables of this vhost yet")
    return found


def _require_interval(text: str) -> float:
    found = parse_age(text)
    if found < EVERY_S_MIN:
        raise ConfigError(f"--every is at least {EVERY_S_MIN:.0f} s, not '{text}'")
    return found
