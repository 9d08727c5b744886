"""`leveret pipeline reshard`: change the number of PostgreSQL shards of the jobs service."""

import importlib.util
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Final

import typer

from leveret.cli.pipeline.options import pipeline_command, show_progress
from leveret.cli.shared.output import Output
from leveret.errors import ConfigError
from leveret.pipeline.environment import Environment

NO_JOBS: Final = "jobs in PostgreSQL need asyncpg: pip install 'leveret[jobs]'"

Postgres = Annotated[
    list[str],
    typer.Option(
        "--jobs-postgres",
        envvar="LEVERET_JOBS_POSTGRES",
        metavar="DSN",
        help="PostgreSQL shard of the jobs service, in order. Repeatable.",
    ),
]


@pipeline_command
def reshard(
    environment: Environment,
    output: Output,
    jobs_postgres: Postgres,
    to: Annotated[int | None, typer.Option("--to", min=1, help="New number of shards.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which topics would move.")
    ] = False,
    verify_only: Annotated[
        bool, typer.Option("--verify-only", help="Only check that every job is on the right shard.")
    ] = False,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, help="Maximum jobs per second copied in advance.")
    ] = None,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, help="Jobs per insert statement.")
    ] = 1_000,
    ahead_from: Annotated[
        int,
        typer.Option(
            "--ahead-from", min=1, help="Copy topics with at least this many jobs in advance."
        ),
    ] = 1_000,
) -> None:
    """Change the number of shards while the service runs. Run it again after an interruption."""
    if importlib.util.find_spec("asyncpg") is None:
        raise ConfigError(NO_JOBS)
    if (to is None) == (not verify_only):
        raise typer.BadParameter("give either --to or --verify-only")
    from leveret.pipeline.flows import reshard as flows

    dsns = tuple(jobs_postgres)
    if to is None:
        _verify(environment, output, dsns)
        return
    asked = flows.ReshardRequest(dsns, to, rate, batch_rows, ahead_from)
    if dry_run:
        _show_plan(output, to, *flows.plan(asked))
        return
    with show_progress() as on_progress:
        done = flows.reshard(partial(_start_copier, environment), asked, on_progress)
    text = f"{len(done.topics)} topics with {done.jobs:,} jobs moved; there are now {to} shards"
    output.done(f"{text}; frozen for {done.frozen_ms_max:.0f} ms at most", asdict(done))


def _start_copier(environment: Environment) -> Callable[..., int]:
    """Start Spark and return the function that copies jobs in advance."""
    from leveret.pipeline.shards import copy_ahead

    return partial(copy_ahead, environment.session("reshard"))


def _verify(environment: Environment, output: Output, dsns: tuple[str, ...]) -> None:
    from leveret.pipeline.flows import reshard as flows

    found = flows.verify(environment.session("reshard"), dsns)
    output.facts({**asdict(found), "is_right": found.is_right})
    if not found.is_right:
        raise typer.Exit(1)


def _show_plan(output: Output, to: int, count: int, planned: list[Any]) -> None:
    rows = [
        {
            "namespace": each.topic[0],
            "topic": each.topic[1],
            "from": each.shard,
            "to": each.home,
            "jobs": each.jobs,
            "bytes": each.bytes,
        }
        for each in planned
    ]
    if output.as_json:
        jobs, size = sum(each.jobs for each in planned), sum(each.bytes for each in planned)
        output.facts({"shards": count, "to": to, "jobs": jobs, "bytes": size, "topics": rows})
        return
    output.table(rows, ["namespace", "topic", "from", "to", "jobs", "bytes"])
    typer.echo(f"{len(rows)} topics would move, from {count} shards to {to}; nothing was changed")
