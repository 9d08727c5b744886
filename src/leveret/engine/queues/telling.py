"""Telling the chronicle of a queue what happens to its messages, one by one and many at once.

Steps that leave a message as it is are told by `QueueState.note`. Callers ask first whether there
is a chronicle: a queue that remembers nothing pays for one comparison.
"""

from leveret.engine.history.life_events import ACKED, DELETED, DELIVERED, QUEUED, copy_id
from leveret.engine.message import NO_ADDRESS, Message
from leveret.engine.queues.state import QueueState


def note_queued(queue: QueueState, message: Message) -> None:
    """A message came, and what it says."""
    assert queue.chronicle is not None
    queue.chronicle.note_content(
        QUEUED,
        copy_id(queue.ledger.id, message.seq),
        queue.turn.publish_id,
        queue.turn.cause_id,
        queue.name,
        message.address,
        message.header,
        message.body,
    )


def note_delivered(queue: QueueState, message: Message, consumer: str, no_ack: bool) -> None:
    """A message went to a consumer, or to whoever got it; without acks that is its end."""
    assert queue.chronicle is not None
    number = copy_id(queue.ledger.id, message.seq)
    queue.chronicle.note(DELIVERED, number, number, queue.name, "", consumer, message.address)
    if no_ack:
        queue.note(ACKED, message, "automatic")


def note_ready_gone(queue: QueueState, event: str) -> None:
    """All ready messages are gone; those that are in the log alone are told of in stretches."""
    chronicle = queue.chronicle
    assert chronicle is not None
    for message in queue.ready.messages():
        queue.note(event, message, "")
    for run in queue.ready.paged_runs():
        for first, last in run.stretches():
            start = copy_id(queue.ledger.id, first)
            end = copy_id(queue.ledger.id, last)
            chronicle.note(event, start, end, queue.name, "", "", NO_ADDRESS)


def note_scheduled_gone(queue: QueueState) -> None:
    """The queue is deleted with what waits in it for a time."""
    chronicle = queue.chronicle
    assert chronicle is not None
    for message in queue.scheduled.messages():
        queue.note(DELETED, message, "")
    for _, _, seq, _, _ in queue.scheduled.in_log.entries():
        number = copy_id(queue.ledger.id, seq)
        chronicle.note(DELETED, number, number, queue.name, "", "", NO_ADDRESS)
