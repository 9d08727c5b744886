"""Commands `leveret jobs job`, `topic`, `schedules`, `schedule` and `unschedule`."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from msgspec import structs

from leveret.cli.jobs.lifecycle import Id
from leveret.cli.jobs.options import Topic, jobs_command, to_row
from leveret.cli.shared.output import Output, Row
from leveret.job_model import Schedule
from leveret.jobs.client.client import Client
from leveret.jobs.client.topics import TopicSettings

_SCHEDULES: Final = (
    "name",
    "topic",
    "cron",
    "timezone",
    "next",
    "is_paused",
    "priority",
    "payload",
)

Name = Annotated[str, typer.Argument(help="Name of the schedule, unique in the namespace.")]


@jobs_command
def job(client: Client, output: Output, topic: Topic, id_: Id) -> None:
    """Show one job in any state, with its failures."""
    row = to_row(client.find(topic, id_))
    failures = row.pop("failures")
    if output.as_json:
        output.table([{**row, "failures": failures}], ())
        return
    output.table([{"field": name, "value": value} for name, value in row.items()], _FIELDS)
    if failures:
        output.table(failures, _FAILURES)


_FIELDS: Final = ("field", "value")
_FAILURES: Final = ("attempt", "time", "error")


@jobs_command
def topic(
    client: Client,
    output: Output,
    topic: Topic,
    retries_max: Annotated[
        int | None, typer.Option("--retries-max", help="Attempts after the first.")
    ] = None,
    backoff: Annotated[
        float | None, typer.Option("--backoff", help="Seconds before the first retry.")
    ] = None,
    backoff_max: Annotated[
        float | None, typer.Option("--backoff-max", help="Longest wait before a retry, in seconds.")
    ] = None,
    jitter: Annotated[
        float | None, typer.Option("--jitter", help="Random share of the wait, from 0 to 1.")
    ] = None,
    lease: Annotated[
        float | None, typer.Option("--lease", help="Default length of a lease, in seconds.")
    ] = None,
    concurrency_max: Annotated[
        int | None,
        typer.Option(
            "--concurrency-max",
            help="Maximum number of leases at once; 0 = pause the topic, -1 = no limit.",
        ),
    ] = None,
) -> None:
    """Show or change the settings of a topic. A setting that is not given is kept."""
    settings = client.settings(topic)
    changes = {
        "retries_max": retries_max,
        "backoff_s": backoff,
        "backoff_s_max": backoff_max,
        "jitter": jitter,
        "lease_s": lease,
        "concurrency_max": concurrency_max,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if concurrency_max == -1:
        given["concurrency_max"] = None  # type: ignore[assignment]
    if given:
        settings = structs.replace(settings, **given)
        client.set_settings(topic, settings)
    output.table([_settings_row(settings)], tuple(TopicSettings.__struct_fields__))


def _settings_row(settings: TopicSettings) -> Row:
    return to_row(settings)


@jobs_command
def schedules(client: Client, output: Output) -> None:
    """Show the schedules of a namespace, and when each fires next."""
    output.table([_schedule_row(each) for each in client.schedules()], _SCHEDULES)


def _schedule_row(schedule: Schedule) -> Row:
    row = to_row(schedule)
    if schedule.next_ms is not None:
        row["next"] = datetime.fromtimestamp(schedule.next_ms / 1000, UTC).isoformat()
    return row


@jobs_command
def schedule(
    client: Client,
    output: Output,
    name: Name,
    topic: Topic,
    cron: Annotated[
        str, typer.Argument(help="minute hour day month weekday, or @hourly and the like.")
    ],
    timezone: Annotated[str, typer.Option("--timezone", help="Time zone of the times.")] = "UTC",
    payload: Annotated[str, typer.Option("--payload", help="Payload of the jobs.")] = "",
    priority: Annotated[int, typer.Option("--priority", "-p", help="Lower is more urgent.")] = 0,
    paused: Annotated[bool, typer.Option("--paused", help="Keep it, but do not fire.")] = False,
) -> None:
    """Enqueue a job at each time of a cron expression. Replaces a schedule of the same name."""
    client.set_schedule(
        Schedule(
            name=name,
            namespace=client.namespace,
            topic=topic,
            cron=cron,
            timezone=timezone,
            payload=payload.encode(),
            priority=priority,
            is_paused=paused,
        )
    )
    output.done(f"schedule {name} is set")


@jobs_command
def unschedule(client: Client, output: Output, name: Name) -> None:
    """Delete a schedule."""
    client.delete_schedule(name)
    output.done(f"schedule {name} is deleted")
