"""The Typer application `leveret jobs` with all its commands."""

from leveret.cli.jobs import lifecycle, operating, topics
from leveret.cli.jobs.token import app

for command in (
    lifecycle.enqueue,
    lifecycle.dequeue,
    lifecycle.ack,
    lifecycle.nack,
    lifecycle.cancel,
    lifecycle.deliver_now,
    topics.stats,
    topics.top,
    topics.dead,
    topics.redrive,
    operating.job,
    operating.topic,
    operating.schedules,
    operating.schedule,
    operating.unschedule,
):
    app.command()(command)

__all__ = ["app"]
