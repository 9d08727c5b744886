"""Pausing queues: nothing is delivered until they are resumed.

A paused queue takes messages as ever, and keeps its limits, expiry and dead letters; its consumers
get nothing and new ones wait. It does not go for want of use. That it is paused is an entry of the
register, so that it still is after a restart, before the first delivery; the pause of a queue that
is not durable goes with it.
"""

import json
from typing import Final

from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.register import Register

PAUSED: Final = "paused"  # kind in the register


def pause(register: Register, queue: Queue, user: str) -> None:
    """Deliver nothing more. A queue that is paused stays so."""
    if queue.paused:
        return
    queue.paused = True
    if queue.durable:
        note = json.dumps({"since_ms": int(queue.turn.now_ms), "user": user})
        register.put(PAUSED, _key(queue), note)


def resume(register: Register, queue: Queue) -> None:
    """Deliver again, in this turn already."""
    if not queue.paused:
        return
    queue.paused = False
    queue.used_ms = queue.turn.now_ms
    forget(register, queue)
    queue.arm()
    queue.touch()


def forget(register: Register, queue: Queue) -> None:
    """The queue is resumed or deleted: the next one of its name is not paused."""
    register.drop(PAUSED, _key(queue))


def load(register: Register, queues: list[Queue | None]) -> None:
    """After a start: pause the queues that were; entries of those that are gone go too."""
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


def pause_note(register: Register, queue: Queue) -> dict[str, object]:
    """`since_ms` and `user` of a pause, where they were kept."""
    text = register.get(PAUSED, _key(queue))
    found: object = json.loads(text) if text is not None else None
    return found if isinstance(found, dict) else {}


def _key(queue: Queue) -> str:
    return json.dumps([queue.vhost, queue.name])
