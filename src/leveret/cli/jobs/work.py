"""`leveret jobs enqueue`, `dequeue`, `ack`, `nack`, `cancel`, `deliver-now`: the life of a job."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from leveret.cli.jobs.asking import Topic, asks_jobs, row_of
from leveret.cli.shared.output import Output, Row
from leveret.clock import Clock
from leveret.job_model import BATCH_MAX, Outcome
from leveret.jobs.client.client import Client
from leveret.jobs.client.job import Job, NewJob

_COLUMNS: Final = ("id", "token", "attempt", "priority", "lease_expires_at", "payload")
_SAYS: Final = {
    Outcome.STALE: "the lease is over, or another worker holds the job",
    Outcome.UNKNOWN: "there is no such job in this topic",
}

Id = Annotated[int, typer.Argument(help="The id of the job.")]
Ids = Annotated[list[int], typer.Argument(help="The ids of the jobs.")]
LeaseToken = Annotated[
    int, typer.Option("--lease-token", help="The token of the lease, as dequeue shows it.")
]


@asks_jobs
def enqueue(
    client: Client,
    output: Output,
    topic: Topic,
    payload: Annotated[str, typer.Argument(help="The payload; - reads standard input.")] = "-",
    file: Annotated[Path | None, typer.Option("--file", help="The payload is this file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a job.")] = False,
    priority: Annotated[int, typer.Option("--priority", "-p", help="Lower is more urgent.")] = 0,
    delay: Annotated[float, typer.Option("--delay", help="Not before so many seconds.")] = 0.0,
    key: Annotated[
        str | None, typer.Option("--key", help="One job for all enqueued with this key.")
    ] = None,
    fair_key: Annotated[
        str | None, typer.Option("--fair-key", help="Keys take turns within a priority.")
    ] = None,
) -> None:
    """Put in a job, or one for each line; they are safe when this returns."""
    if lines and key is not None:
        raise typer.BadParameter("with --key there would be one job for all lines")
    data = file.read_bytes() if file is not None else _given(payload)
    ids: list[int] = []
    for some in _batches(data.splitlines() if lines else [data]):
        jobs = [
            NewJob(
                topic=topic,
                payload=each,
                priority=priority,
                deliver_after=_after(delay),
                idempotency_key=key,
                fair_key=fair_key,
            )
            for each in some
        ]
        ids += client.enqueue_many(jobs).ids
    output.done("\n".join(map(str, ids)), ids)


def _given(payload: str) -> bytes:
    return sys.stdin.buffer.read() if payload == "-" else payload.encode()


def _after(delay_s: float) -> datetime | None:
    if delay_s <= 0:
        return None
    now = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC)
    return now + timedelta(seconds=delay_s)


def _batches(payloads: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(payloads), BATCH_MAX):
        yield payloads[start : start + BATCH_MAX]


@asks_jobs
def dequeue(
    client: Client,
    output: Output,
    topic: Topic,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.")] = 1,
    wait: Annotated[float, typer.Option("--wait", help="Wait so many seconds for one.")] = 0.0,
    lease: Annotated[
        float | None, typer.Option("--lease", help="Seconds until they come back, if not acked.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="They are done: take them for good.")] = False,
) -> None:
    """Take jobs under a lease and show them; they come back unless they are acknowledged."""
    jobs = client.dequeue(topic, limit=limit, wait_s=wait, lease_s=lease)
    if ack and jobs:
        client.ack_many(jobs)
    rows = [_row(job) for job in jobs]
    if rows or output.as_json:
        output.table(rows, _COLUMNS)
    else:
        typer.echo("no job is ready")


def _row(job: Job) -> Row:
    row = row_of(job)
    return {name: row[name] for name in row if name != "is_lost"}


@asks_jobs
def ack(client: Client, output: Output, topic: Topic, id_: Id, lease_token: LeaseToken) -> None:
    """Say that a job is done."""
    client.ack(_leased(client, topic, id_, lease_token))
    output.done(f"job {id_} is done")


@asks_jobs
def nack(
    client: Client,
    output: Output,
    topic: Topic,
    id_: Id,
    lease_token: LeaseToken,
    error: Annotated[str, typer.Option("--error", help="Why it failed.")] = "",
    delay: Annotated[
        float | None, typer.Option("--delay", help="Try again after so many seconds.")
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Try it no more.")] = False,
) -> None:
    """Say that a job failed; it is tried again later, or is dead."""
    client.nack(_leased(client, topic, id_, lease_token), error, delay_s=delay, dead=dead)
    output.done(f"job {id_} is {'dead' if dead else 'given back'}")


def _leased(client: Client, topic: str, id: int, token: int) -> Job:
    never = datetime.fromtimestamp(0, UTC)
    return Job(
        id=id,
        token=token,
        payload=b"",
        lease_expires_at=never,
        namespace=client.namespace,
        topic=topic,
    )


@asks_jobs
def cancel(client: Client, output: Output, topic: Topic, ids: Ids) -> None:
    """Drop jobs that are ready or scheduled."""
    _told(output, ids, client.cancel(topic, ids), "cancelled")


@asks_jobs
def deliver_now(client: Client, output: Output, topic: Topic, ids: Ids) -> None:
    """Make scheduled jobs ready."""
    _told(output, ids, client.deliver_now(topic, ids), "ready")


def _told(output: Output, ids: list[int], outcomes: list[Outcome], done: str) -> None:
    for id, outcome in zip(ids, outcomes, strict=True):
        if outcome is not Outcome.DONE:
            typer.echo(f"leveret jobs: job {id}: {_SAYS[outcome]}", err=True)
    count = outcomes.count(Outcome.DONE)
    output.done(f"{count} {'job is' if count == 1 else 'jobs are'} {done}", {done: count})
    if count < len(ids):
        raise typer.Exit(1)
