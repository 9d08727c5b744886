"""Peek into a queue: in the order of delivery, in memory and in the log, without changes."""

from collections.abc import Callable
from random import Random

import pytest

from leveret.engine.insight.peek import peek
from leveret.engine.message import REDELIVERED
from leveret.engine.queues.queue import Queue
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage

ALL = 1_000_000

Filled = tuple[StorageStage, Client, Queue]


def filled(arguments: dict[str, object], window: int = 4) -> Filled:
    """Return a queue with messages in memory, in the log, and returned by a consumer."""
    stage = StorageStage(FakeDisk(), file_bytes=3000)
    client = Client(stage)
    client.declare("q", **arguments)
    queue = stage.broker.vhost("/").queues["q"]
    queue.ready.window = window
    rng = Random(3)
    for number in range(60):
        priority = rng.randrange(4)
        properties: dict[str, object] = {"delivery_mode": rng.choice((1, 2)), "priority": priority}
        client.publish("q", b"%02d" % number * 20, properties)
    tags = [client.get("q") for _ in range(9)]
    for message in tags[::2]:
        assert message is not None
        client.peer.send(3, "basic.nack", delivery_tag=message.tag, requeue=True)
    stage.sync_all()
    return stage, client, queue


def trace(stage: StorageStage, queue: Queue) -> tuple[object, ...]:
    """Return everything about a queue that a peek could change."""
    ready = queue.ready
    lines = [
        (
            [(id(m), int(m.flags), int(m.returns)) for m in line.messages()],
            [(int(r.file), int(r.at), list(r.seqs), list(r.offsets)) for r in line.paged.runs],
            int(line.fresh_bytes),
        )
        for line in ready.all_lines()
    ]
    counts = (int(ready.count), int(ready.body_bytes), int(queue.unacked), queue.damaged)
    journal = (int(stage.store.log.taken_block), dict(stage.store.journal.live))
    return lines, counts, journal, list(queue.damage), list(stage.broker.turn.faults)


KINDS: dict[str, dict[str, object]] = {
    "classic": {},
    "priorities": {"x-max-priority": 3},
    "quorum": {"x-queue-type": "quorum"},
    "lazy": {"x-queue-mode": "lazy"},
}


@pytest.fixture(params=sorted(KINDS))
def make(request: pytest.FixtureRequest) -> Callable[[], Filled]:
    return lambda: filled(KINDS[request.param])


def test_peek_shows_messages_in_the_order_of_delivery(make: Callable[[], Filled]) -> None:
    _, client, queue = make()
    assert sum(line.paged.count for line in queue.ready.all_lines()) > 10
    seen = [(m.body, m.flags & REDELIVERED != 0) for m in peek(queue, ALL, ALL)]
    taken = [(m.body, bool(m.fields["redelivered"])) for m in client.drain("q")]
    assert len(seen) == queue.ready.count + len(taken) == 56
    assert seen == taken


def test_peek_changes_nothing(make: Callable[[], Filled]) -> None:
    stage, _, queue = make()
    before = trace(stage, queue)
    for count in (0, 1, 5, 20, ALL):
        for from_end in (False, True):
            peek(queue, count, ALL, from_end)
    assert trace(stage, queue) == before


def test_first_and_last_are_ends_of_the_same_order(make: Callable[[], Filled]) -> None:
    _, _, queue = make()
    whole = [m.body for m in peek(queue, ALL, ALL)]
    for count in range(1, len(whole) + 2):
        assert [m.body for m in peek(queue, count, ALL)] == whole[:count]
        assert [m.body for m in peek(queue, count, ALL, True)] == whole[-count:]


def test_peek_limits_body_bytes_but_always_shows_one_message() -> None:
    _, _, queue = filled({})
    whole = [m.body for m in peek(queue, ALL, ALL)]
    assert [m.body for m in peek(queue, ALL, 100)] == whole[:2]
    assert [m.body for m in peek(queue, ALL, 1)] == whole[:1]
    assert [m.body for m in peek(queue, ALL, 100, True)] == whole[-2:]


def test_messages_that_cannot_be_read_are_passed_over_and_not_set_aside() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=700)
    client = Client(stage)
    client.declare("q")
    for number in range(10):
        client.publish("q", b"%d" % number * 50)
    disk = stage.killed()
    (name,) = [n for n in disk.names() if n.endswith(".log") and b"4" * 50 in disk.content(n)]
    disk.flip(name, disk.content(name).index(b"4" * 50) * 8)
    again = StorageStage(disk)
    queue = again.broker.vhost("/").queues["q"]
    before = trace(again, queue)
    want = [b"%d" % number * 50 for number in range(10) if number != 4]
    assert [m.body for m in peek(queue, ALL, ALL)] == want
    assert [m.body for m in peek(queue, ALL, ALL, True)] == want
    assert trace(again, queue) == before
    assert queue.ready.count == 10
