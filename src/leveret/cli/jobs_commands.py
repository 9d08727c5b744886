"""The commands of `leveret jobs` that ask a running service."""

from leveret.cli import jobs_watch, jobs_work
from leveret.cli.jobs import app

for command in (
    jobs_work.enqueue,
    jobs_work.dequeue,
    jobs_work.ack,
    jobs_work.nack,
    jobs_work.cancel,
    jobs_work.deliver_now,
    jobs_watch.stats,
    jobs_watch.top,
    jobs_watch.dead,
    jobs_watch.redrive,
):
    app.command()(command)

__all__ = ["app"]
