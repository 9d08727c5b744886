"""Digests of every byte that a random load makes the log write, to compare the two forms.

As a module (`python -m tests.simulation.storage_bytes SEED`) it prints its form and a digest for
each step: of all changes of the disk so far, and after a start of the recovered state.
"""

from __future__ import annotations

import hashlib
import sys
from random import Random
from typing import Any, Final

from leveret import build_info
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.message import LOGGED, REDELIVERED, Message
from leveret.engine.queues.queue import Queue
from leveret.testing.disk import FakeDisk
from tests.protocol.stage import START_MS
from tests.simulation.storage_model import Load
from tests.simulation.storage_stage import StorageStage

GENERATIONS: Final = 6
STEPS: Final = 40  # of a generation, each of several commands
COMMANDS: Final = 5
SIZES: Final = (0, 1, 20, 200, 20_000)  # the last is over what is copied into a block


def digests(seed: int) -> list[str]:
    """Return a digest after each step."""
    rng = Random(seed)
    load = Load(rng, SIZES)
    disk = FakeDisk()
    now_ms = START_MS
    found: list[str] = []
    for generation in range(GENERATIONS):
        stage = StorageStage(disk, file_bytes=rng.choice((2048, 100_000)), now_ms=now_ms)
        found.append(_digest(repr(durable_view(stage)).encode()))
        load.begin(stage)
        load.define()
        for _ in range(STEPS):
            load.run(COMMANDS)
            found.append(_digest(_changes(disk)))
        now_ms = stage.now_ms
        load.state = load.state.after_start()
        stage.sync_all()
        disk = stage.stop() if generation % 2 else stage.killed()
    return found


def _changes(disk: FakeDisk) -> bytes:
    """Return everything that was done to a disk, in order."""
    lines = [
        b"%s %s %s %d %s\n" % (c.kind.encode(), c.name.encode(), c.to.encode(), c.offset, c.data)
        for c in disk.changes
    ]
    return b"".join(lines)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def main() -> None:
    print("compiled" if build_info.is_compiled() else "interpreted")
    print("\n".join(digests(int(sys.argv[1]))))


View = dict[str, Any]


def durable_view(stage: StorageStage) -> View:
    """Everything durable, in a form that is equal before and after a restart.

    What is in flight counts as waiting; a message whose time has come is no longer scheduled.
    """
    flying = _in_flight(stage)
    now_ms = stage.now_ms
    view: View = {}
    for vhost in stage.broker.vhosts.values():
        held = {name: q for name, q in vhost.holding.items() if q.durable}
        queues = {name: q for name, q in vhost.queues.items() if q.durable}
        view[vhost.name] = {
            "exchanges": {e.name: _exchange_view(e) for e in vhost.exchanges.values() if e.durable},
            "queues": {n: _queue_view(q, flying, now_ms) for n, q in queues.items()},
            "held": {n: _queue_view(q, flying, now_ms) for n, q in held.items()},
        }
    return view


def _in_flight(stage: StorageStage) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for connection in stage.peers:
        for channel in connection.channels.values():
            for message in channel.unacked.messages():
                found.setdefault(int(message.queue), []).append(message)
    return found


def _exchange_view(exchange: Exchange) -> View:
    durable = [b for b in exchange.bindings.values() if getattr(b.target, "durable", False)]
    return {
        "kind": exchange.kind,
        "flags": (exchange.auto_delete, exchange.internal),
        "arguments": {name: field.value for name, field in exchange.arguments.items()},
        "bindings": sorted((b.target.name, b.is_queue, b.routing_key) for b in durable),
    }


def _queue_view(queue: Queue, flying: dict[int, list[Message]], now_ms: int) -> View:
    waiting = [*queue.ready.messages(), *flying.get(int(queue.slot), [])]
    messages = {int(m.seq): _message_view(queue, m, 0) for m in waiting if m.flags & LOGGED}
    for due_ms, message in queue.scheduled.entries():
        if message.flags & LOGGED:
            due = int(due_ms) if due_ms > now_ms else 0
            messages[int(message.seq)] = _message_view(queue, message, due)
    return {
        "id": int(queue.ledger.id),
        "auto_delete": queue.auto_delete,
        "arguments": {name: field.value for name, field in queue.arguments.items()},
        "messages": dict(sorted(messages.items())),
    }


def _message_view(queue: Queue, message: Message, due_ms: int) -> tuple[object, ...]:
    was_delivered = message.seq <= queue.ledger.delivered_seq or message.flags & REDELIVERED != 0
    counts = (int(message.returns), int(message.failures)) if queue.counts else (0, 0)
    address = message.address
    return (
        message.body,
        message.header,
        address.exchange,
        tuple(address.keys),
        int(address.shown),
        int(message.priority),
        int(message.expires_ms),
        due_ms,
        was_delivered,
        counts,
    )


if __name__ == "__main__":
    main()
