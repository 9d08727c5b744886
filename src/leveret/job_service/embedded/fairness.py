"""Topics whose keys take turns: noted in the register, so that they do after a restart too.

A start does not read messages, so that what waits stands in the plain lines of its priorities. A
backlog that is not large is dealt out to the lanes of its keys then; a larger one is one turn.
"""

import json
from typing import Final

from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.register import Register
from leveret.errors import CorruptionError

KIND: Final = "job-fair"  # of the register's entries
DEALT_MAX: Final = 20_000  # messages that are dealt out, in some 0.2 s
DEALT_BYTES_MAX: Final = 64 * 1024 * 1024


def note_fair(register: Register, namespace: str, topic: str) -> None:
    """The first job with a fair key came to a topic, in this turn."""
    register.put(KIND, json.dumps([namespace, topic]), "true")


def forget_fair(register: Register, namespace: str, topic: str) -> None:
    register.drop(KIND, json.dumps([namespace, topic]))


def fair_topics(register: Register) -> list[tuple[str, str]]:
    return [tuple(json.loads(key)) for key in register.entries(KIND)]


def open_lanes(queue: Queue) -> None:
    """Let keys take turns again after a restart, inside a turn."""
    ready = queue.ready
    dealt: list[Message] = []
    if ready.count <= DEALT_MAX and ready.body_bytes <= DEALT_BYTES_MAX:
        while ready.count != 0:
            try:
                dealt.append(ready.pop())
            except CorruptionError as fault:
                queue.note_damage(fault)
    ready.open_fair_lines()
    journal = queue.ledger.journal
    for message in dealt:
        if journal is not None and journal.is_moving:
            message.position = journal.current_position(message.position)
        ready.push(message)
