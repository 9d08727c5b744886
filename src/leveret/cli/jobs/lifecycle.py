"""Commands `leveret jobs enqueue`, `dequeue`, `ack`, `nack`, `cancel` and `deliver-now`."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from leveret.cli.jobs.options import Topic, jobs_command, to_row
from leveret.cli.shared.output import Output, Row
from leveret.clock import Clock
from leveret.job_model import BATCH_MAX, DELAY_MS_MAX, Outcome
from leveret.jobs.client.client import Client
from leveret.jobs.client.job import Job, NewJob

_COLUMNS: Final = ("id", "token", "attempt", "priority", "lease_expires_at", "payload")
_REFUSALS: Final = {
    Outcome.STALE: "the lease has expired, or another worker holds the job",
    Outcome.UNKNOWN: "there is no such job in this topic",
}

Id = Annotated[int, typer.Argument(metavar="id", help="Id of the job.")]
Ids = Annotated[list[int], typer.Argument(help="Ids of the jobs.")]
LeaseToken = Annotated[
    int, typer.Option("--lease-token", help="The lease token, as shown by dequeue.")
]


@jobs_command
def enqueue(
    client: Client,
    output: Output,
    topic: Topic,
    payload: Annotated[str, typer.Argument(help="The payload; - reads standard input.")] = "-",
    file: Annotated[
        Path | None, typer.Option("--file", help="Read the payload from this file.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Make each line a job.")] = False,
    priority: Annotated[int, typer.Option("--priority", "-p", help="Lower is more urgent.")] = 0,
    delay: Annotated[float, typer.Option("--delay", help="Delay in seconds.")] = 0.0,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key: enqueue only one job with this key."),
    ] = None,
    fair_key: Annotated[
        str | None, typer.Option("--fair-key", help="Fair key: within a priority, keys take turns.")
    ] = None,
) -> None:
    """Enqueue a job, or one job per line. They are stored when the command returns."""
    if lines and key is not None:
        raise typer.BadParameter(
            "--lines cannot be used with --key: it would make one job of all lines"
        )
    if file is not None and payload != "-":
        raise typer.BadParameter("give a payload or --file, not both")
    if not 0 <= delay <= DELAY_MS_MAX / 1000:
        raise typer.BadParameter(f"--delay must be from 0 to {DELAY_MS_MAX // 1000} seconds")
    data = file.read_bytes() if file is not None else _read_payload(payload)
    ids: list[int] = []
    for batch in _batches(data.splitlines() if lines else [data]):
        jobs = [
            NewJob(
                topic=topic,
                payload=each,
                priority=priority,
                deliver_after=_after(delay),
                idempotency_key=key,
                fair_key=fair_key,
            )
            for each in batch
        ]
        ids += client.enqueue_many(jobs).ids
    output.done("\n".join(map(str, ids)), ids)


def _read_payload(payload: str) -> bytes:
    return sys.stdin.buffer.read() if payload == "-" else payload.encode()


def _after(delay_s: float) -> datetime | None:
    if delay_s == 0:
        return None
    now = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC)
    return now + timedelta(seconds=delay_s)


def _batches(payloads: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(payloads), BATCH_MAX):
        yield payloads[start : start + BATCH_MAX]


@jobs_command
def dequeue(
    client: Client,
    output: Output,
    topic: Topic,
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of jobs.")] = 1,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for a job.")] = 0.0,
    lease: Annotated[
        float | None,
        typer.Option(
            "--lease", help="Lease in seconds, after which unacknowledged jobs are ready again."
        ),
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge the jobs at once.")] = False,
) -> None:
    """Lease jobs and show them. They become ready again unless they are acknowledged."""
    jobs = client.dequeue(topic, limit=limit, wait_s=wait, lease_s=lease)
    if ack and jobs:
        client.ack_many(jobs)
    rows = [_row(job) for job in jobs]
    if rows or output.as_json:
        output.table(rows, _COLUMNS)
    else:
        typer.echo("no job is ready")


def _row(job: Job) -> Row:
    row = to_row(job)
    return {name: row[name] for name in row if name != "is_lost"}


@jobs_command
def ack(client: Client, output: Output, topic: Topic, id_: Id, lease_token: LeaseToken) -> None:
    """Acknowledge a job: it is done."""
    client.ack(_leased(client, topic, id_, lease_token))
    output.done(f"job {id_} is done")


@jobs_command
def nack(
    client: Client,
    output: Output,
    topic: Topic,
    id_: Id,
    lease_token: LeaseToken,
    error: Annotated[str, typer.Option("--error", help="The error message.")] = "",
    delay: Annotated[
        float | None, typer.Option("--delay", help="Seconds until the next try.")
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Do not retry: make it a dead job.")] = False,
) -> None:
    """Report that a job failed. It is retried later, or becomes dead."""
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


@jobs_command
def cancel(client: Client, output: Output, topic: Topic, ids: Ids) -> None:
    """Cancel jobs that are ready or scheduled."""
    _report(output, ids, client.cancel(topic, ids), "cancelled")


@jobs_command
def deliver_now(client: Client, output: Output, topic: Topic, ids: Ids) -> None:
    """Make scheduled jobs ready now."""
    _report(output, ids, client.deliver_now(topic, ids), "ready")


def _report(output: Output, ids: list[int], outcomes: list[Outcome], done: str) -> None:
    for id, outcome in zip(ids, outcomes, strict=True):
        if outcome is not Outcome.DONE:
            typer.echo(f"leveret jobs: job {id}: {_REFUSALS[outcome]}", err=True)
    count = outcomes.count(Outcome.DONE)
    output.done(f"{count} {'job is' if count == 1 else 'jobs are'} {done}", {done: count})
    if count < len(ids):
        raise typer.Exit(1)
