"""Note in the chronicle of a queue what happens to its messages, one by one or many at once.

`QueueState.note` notes the steps that carry no content. Callers check first whether there is a
chronicle: a queue without one pays for one comparison.
"""

from leveret.engine.history.life_events import ACKED, DELETED, DELIVERED, QUEUED, copy_id
from leveret.engine.message import NO_ADDRESS, Message
from leveret.engine.queues.state import QueueState


def note_queued(queue: QueueState, message: Message) -> None:
    """Note a message that arrived, with its content."""
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
    """Note a delivery. Without acks, note the end of the message too."""
    assert queue.chronicle is not None
    number = copy_id(queue.ledger.id, message.seq)
    queue.chronicle.note(DELIVERED, number, number, queue.name, "", consumer, message.address)
    if no_ack:
        queue.note(ACKED, message, "automatic")


def note_ready_gone(queue: QueueState, event: str) -> None:
    """Note that all ready messages are gone. Messages in the log alone are noted as ranges."""
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
    """Note that all scheduled messages are deleted with their queue."""
    chronicle = queue.chronicle
    assert chronicle is not None
    for message in queue.scheduled.messages():
        queue.note(DELETED, message, "")
    for _, _, seq, _, _ in queue.scheduled.in_log.entries():
        number = copy_id(queue.ledger.id, seq)
        chronicle.note(DELETED, number, number, queue.name, "", "", NO_ADDRESS)
