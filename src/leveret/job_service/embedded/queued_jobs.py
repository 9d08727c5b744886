"""Changes jobs that are ready or scheduled: cancels them, or makes them ready at once.

Jobs are named by the numbers of their messages. A message that was taken since it was found is left
alone, which is not an error.
"""

from leveret.engine.commands.picking import PickedMessage, remove
from leveret.job_service.embedded.envelope import job_id, read_envelope
from leveret.job_service.embedded.job_search import pick_message
from leveret.job_service.embedded.topic import Topic


def cancel_job(topic: Topic, id: int, seq: int) -> bool:
    """Delete a job, inside a turn; False where it is not there any more."""
    found = _still_there(topic, id, seq)
    if found is None:
        return False
    remove(topic.queue, [found])
    topic.queue.purged += 1
    topic.queue.ledger.forget(found.message)
    topic.note_ended(id, is_gone=True)
    return True


def deliver_job_now(topic: Topic, id: int, seq: int) -> bool:
    """Make a job ready, inside a turn; False where it is not there or does not fit."""
    found = _still_there(topic, id, seq)
    if found is None:
        return False
    if found.due_ms == 0:
        return True
    envelope = read_envelope(found.message, topic.queue)
    envelope.after_ms = topic.queue.turn.now_ms
    if not topic.has_room(1, len(found.message.body)):
        return False
    remove(topic.queue, [found])
    is_taken = topic.put(envelope, found.message.body)
    assert is_taken, "there was room for it"
    topic.queue.ledger.hand_over(found.message)
    return True


def _still_there(topic: Topic, id: int, seq: int) -> PickedMessage | None:
    found = pick_message(topic.queue, seq)
    return found if found is not None and job_id(found.message) == id else None
