"""The Typer application `leveret jobs` with all its commands."""

from leveret.cli.jobs import lifecycle, topics
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
):
    app.command()(command)

__all__ = ["app"]
