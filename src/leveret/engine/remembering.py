"""Telling a chronicle of many messages at once: those of a queue that is purged or deleted."""

from mypy_extensions import i64

from leveret.engine.chronicle import DELETED, Chronicle, copy_id
from leveret.engine.message import NO_ADDRESS
from leveret.engine.ready import Ready
from leveret.engine.scheduled import Scheduled


def note_ready_gone(
    chronicle: Chronicle, queue_id: i64, queue: str, ready: Ready, event: str
) -> None:
    """All ready messages are gone; those that are in the log alone are told of in stretches."""
    for message in ready.messages():
        number = copy_id(queue_id, message.seq)
        chronicle.note(event, number, number, queue, "", "", message.address)
    for run in ready.paged_runs():
        for first, last in run.stretches():
            start = copy_id(queue_id, first)
            end = copy_id(queue_id, last)
            chronicle.note(event, start, end, queue, "", "", NO_ADDRESS)


def note_scheduled_gone(
    chronicle: Chronicle, queue_id: i64, queue: str, scheduled: Scheduled
) -> None:
    """The queue is deleted with what waits in it for a time."""
    for message in scheduled.messages():
        number = copy_id(queue_id, message.seq)
        chronicle.note(DELETED, number, number, queue, "", "", message.address)
    for _, _, seq, _, _ in scheduled.distant.entries():
        number = copy_id(queue_id, seq)
        chronicle.note(DELETED, number, number, queue, "", "", NO_ADDRESS)
