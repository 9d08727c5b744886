"""Give a message a place again after a fault of the broker left it without one.

A message is taken from one place before it is put into the next one. If the code in between fails,
the message goes to the turn's `leaving` column, and the broker parks it with the fault as reason.
Nothing here runs unless there was a fault, so the searches may be slow.
"""

from leveret.engine.message import Message
from leveret.engine.queues.state import QueueState
from leveret.engine.turns.session import Consumer
from leveret.engine.turns.turn import FAULT, Leaving


def rescue(queue: QueueState, message: Message, fault: Exception) -> None:
    """Note a fault. If the message has no place now, let it leave its queue to be parked."""
    if _has_place(queue, message):
        queue.turn.note_fault(f"handling message {message.seq} of queue '{queue.name}'", fault)
        return
    leaving = Leaving(message, queue, FAULT)
    leaving.fault = fault
    queue.turn.leaving.append(leaving)


def _has_place(queue: QueueState, message: Message) -> bool:
    """Return True if a message is ready, scheduled, in flight or about to leave."""
    holder = message.holder
    if isinstance(holder, Consumer) and holder.session.unacked.find(message.tag) is message:
        return True
    for held in queue.ready.messages():
        if held is message:
            return True
    for held in queue.scheduled.messages():
        if held is message:
            return True
    for leaving in queue.turn.leaving:
        if leaving.message is message:
            return True
    return False
