"""Jobs that wait, cancelled or woken: found before, in the same turn of the loop."""

from leveret.engine.picking import Picked, remove
from leveret.jobs.service.embedded.envelope import read_envelope
from leveret.jobs.service.embedded.finding import picked
from leveret.jobs.service.embedded.topic import Topic


def cancel_found(topic: Topic, id: int, seq: int) -> None:
    """Drop a job, inside a turn."""
    found = _taken_out(topic, seq)
    topic.queue.purged += 1
    topic.queue.ledger.forget(found.message)
    topic.note_ended(id, is_gone=True)


def deliver_found(topic: Topic, id: int, seq: int) -> None:
    """Make a job ready, inside a turn; one that is ready stays as it is."""
    found = picked(topic.queue, seq)
    assert found is not None, "it was found in this turn of the loop"
    if found.due_ms == 0:
        return
    remove(topic.queue, [found])
    envelope = read_envelope(found.message, topic.queue)
    envelope.after_ms = topic.queue.turn.now_ms
    is_taken = topic.put(envelope, found.message.body)
    assert is_taken, "a scheduled job has its place"
    topic.queue.ledger.hand_over(found.message)


def _taken_out(topic: Topic, seq: int) -> Picked:
    found = picked(topic.queue, seq)
    assert found is not None, "it was found in this turn of the loop"
    remove(topic.queue, [found])
    return found
