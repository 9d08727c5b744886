"""`leveret pipeline reshard`: jobs between numbers of PostgreSQL shards."""

import importlib.util
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Final

import typer

from leveret.cli.pipeline.options import flow, told
from leveret.cli.shared.output import Output
from leveret.errors import ConfigError
from leveret.pipeline.site import Site

NO_JOBS: Final = "jobs in PostgreSQL need asyncpg: pip install 'leveret[jobs]'"

Postgres = Annotated[
    list[str],
    typer.Option(
        "--jobs-postgres",
        envvar="LEVERET_JOBS_POSTGRES",
        metavar="DSN",
        help="A PostgreSQL database of the jobs service; repeat per shard, in their order.",
    ),
]


@flow
def reshard(
    site: Site,
    output: Output,
    jobs_postgres: Postgres,
    to: Annotated[
        int | None, typer.Option("--to", min=1, help="So many shards there are to be.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which topics would move.")
    ] = False,
    verify_only: Annotated[
        bool, typer.Option("--verify-only", help="Only compare all jobs with the shard map.")
    ] = False,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, help="Copy at most so many jobs a second ahead.")
    ] = None,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, help="Jobs in one insert.")
    ] = 1_000,
    ahead_from: Annotated[
        int, typer.Option("--ahead-from", min=1, help="Copy topics of so many jobs ahead.")
    ] = 1_000,
) -> None:
    """Move jobs to another number of shards while the service runs; run it again to go on."""
    if importlib.util.find_spec("asyncpg") is None:
        raise ConfigError(NO_JOBS)
    if (to is None) == (not verify_only):
        raise typer.BadParameter("give --to, or --verify-only")
    from leveret.pipeline.flows import reshard as flows

    dsns = tuple(jobs_postgres)
    if to is None:
        _verify(site, output, dsns)
        return
    asked = flows.Asked(dsns, to, rate, batch_rows, ahead_from)
    if dry_run:
        _show_plan(output, to, *flows.plan(asked))
        return
    with told() as on_progress:
        done = flows.reshard(partial(_ahead, site), asked, on_progress)
    text = f"{len(done.topics)} topics with {done.jobs:,} jobs moved; there are {to} shards now"
    output.done(f"{text}; frozen for {done.frozen_ms_max:.0f} ms at most", asdict(done))


def _ahead(site: Site) -> Callable[..., int]:
    """Spark is started when there is something to copy."""
    from leveret.pipeline.shards import copy_ahead

    return partial(copy_ahead, site.session("reshard"))


def _verify(site: Site, output: Output, dsns: tuple[str, ...]) -> None:
    from leveret.pipeline.flows import reshard as flows

    found = flows.verify(site.session("reshard"), dsns)
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
