"""Topics whose fair keys take turns. The register lists them, so that a restart keeps the turns.

A start does not read messages, so waiting jobs are in one line for each priority and not in the
lines of their fair keys. A small backlog is distributed to the lines at the start. A larger backlog
stays in its line, which counts as one fair line.
"""

import json
from typing import Final

from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.register import Register
from leveret.errors import CorruptionError

REGISTER_KIND: Final = "job-fair"  # of the entries in the register
DISTRIBUTED_MAX: Final = 20_000  # messages, which takes about 0.2 s
DISTRIBUTED_BYTES_MAX: Final = 64 * 1024 * 1024


def note_fair(register: Register, namespace: str, topic: str) -> None:
    """Record that the first job with a fair key came to a topic, inside a turn."""
    register.put(REGISTER_KIND, json.dumps([namespace, topic]), "true")


def forget_fair(register: Register, namespace: str, topic: str) -> None:
    register.drop(REGISTER_KIND, json.dumps([namespace, topic]))


def fair_topics(register: Register) -> list[tuple[str, str]]:
    return [tuple(json.loads(key)) for key in register.entries(REGISTER_KIND)]


def open_fair_lines(queue: Queue) -> None:
    """Open the fair lines of a queue after a restart, inside a turn."""
    ready = queue.ready
    taken: list[Message] = []
    if ready.count <= DISTRIBUTED_MAX and ready.body_bytes <= DISTRIBUTED_BYTES_MAX:
        while ready.count != 0:
            try:
                taken.append(ready.pop())
            except CorruptionError as fault:
                queue.note_damage(fault)
    ready.open_fair_lines()
    journal = queue.ledger.journal
    for message in taken:
        if journal is not None and journal.is_moving:
            message.position = journal.current_position(message.position)
        ready.push(message)
