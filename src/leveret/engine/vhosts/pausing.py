"""Pause queues: a paused queue delivers nothing until it is resumed.

A paused queue accepts messages as before, and keeps its limits, expiry and dead letters. Its
consumers get nothing, and new consumers wait. It does not expire for lack of use. The pause of a
durable queue is an entry of the register, so that it lasts over a restart. The pause of another
queue ends with the queue.
"""

import json
from typing import Final

from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.register import Register

PAUSED: Final = "paused"  # kind in the register


def pause(register: Register, queue: Queue, user: str) -> None:
    """Stop deliveries. A queue that is paused stays paused."""
    if queue.paused:
        return
    queue.paused = True
    if queue.durable:
        note = json.dumps({"since_ms": int(queue.turn.now_ms), "user": user})
        register.put(PAUSED, _key(queue), note)


def resume(register: Register, queue: Queue) -> None:
    """Start deliveries again, in this turn."""
    if not queue.paused:
        return
    queue.paused = False
    queue.used_ms = queue.turn.now_ms
    forget_pause(register, queue)
    queue.arm()
    queue.touch()


def forget_pause(register: Register, queue: Queue) -> None:
    """Remove the entry of a queue that is resumed or deleted."""
    register.drop(PAUSED, _key(queue))


def forget_pauses(register: Register, vhost: str) -> None:
    """Remove the entries of all queues of a vhost that is deleted."""
    for key in list(register.entries(PAUSED)):
        if json.loads(key)[0] == vhost:
            register.drop(PAUSED, key)


def load_pauses(register: Register, queues: list[Queue | None]) -> None:
    """Pause queues after a start, as the register says. Remove entries of missing queues."""
    entries = list(register.entries(PAUSED))
    if not entries:
        return
    by_key = {_key(queue): queue for queue in queues if queue is not None}
    for key in entries:
        queue = by_key.get(key)
        if queue is None:
            register.drop(PAUSED, key)
        else:
            queue.paused = True


def pause_details(register: Register, queue: Queue) -> dict[str, object]:
    """Return `since_ms` and `user` of a pause, if the register has them."""
    text = register.get(PAUSED, _key(queue))
    found: object = json.loads(text) if text is not None else None
    return found if isinstance(found, dict) else {}


def _key(queue: Queue) -> str:
    return json.dumps([queue.vhost, queue.name])
