"""The commands of `leveret jobs` that ask a running service."""

from leveret.cli.jobs import watch, work
from leveret.cli.jobs.token import app

for command in (
    work.enqueue,
    work.dequeue,
    work.ack,
    work.nack,
    work.cancel,
    work.deliver_now,
    watch.stats,
    watch.top,
    watch.dead,
    watch.redrive,
):
    app.command()(command)

__all__ = ["app"]
