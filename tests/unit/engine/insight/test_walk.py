"""A walk through a queue sees every message and changes nothing."""

from random import Random
from typing import cast

import pytest

from leveret.engine.checkpoint import checkpoint_records
from leveret.engine.insight.filters import READY, SCHEDULED, STATES, UNACKED, Filter
from leveret.engine.insight.walk import FoundMessage, Walk
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Session
from leveret.testing.disk import FakeDisk
from tests.protocol.stage import publish
from tests.simulation.storage_stage import Client, StorageStage

MANY = 10_000


def sessions(stage: StorageStage) -> list[Session]:
    return cast(list[Session], [c for link in stage.peers for c in link.channels.values()])


def walk_all(
    stage: StorageStage, queue: Queue, wanted: Filter, most: int = 100
) -> list[FoundMessage]:
    walk = Walk(queue, stage.broker.vhost("/").stuck, wanted, sessions(stage))
    found: list[FoundMessage] = []
    while not walk.is_done():
        walk.step(most, 50, 1 << 30)
        found += walk.take()
    return found


def state_of(stage: StorageStage, queue: Queue) -> tuple[object, ...]:
    """Return the whole state of a queue, for comparison."""
    ready = queue.ready
    lines = [
        (
            [(id(m), m.seq, m.rank, m.flags, m.returns, m.failures) for m in line.messages()],
            [
                (r.file, r.at, r.last, r.seqs.tobytes(), r.offsets.tobytes())
                for r in line.paged.runs
            ],
            (line.at, line.fresh_bytes, line.paged.count, sorted(r[0] for r in line.returned)),
        )
        for line in ready.all_lines()
    ]
    scheduled = [(due, m.seq, m.flags) for due, m in queue.scheduled.entries()]
    held = [
        (m.seq, m.tag, m.flags, m.taken_ms, id(m.holder))
        for session in sessions(stage)
        for m in session.unacked.messages()
    ]
    counts = (ready.count, ready.body_bytes, queue.unacked, queue.unacked_bytes, queue.next_seq)
    stats = (queue.delivered, queue.got, queue.acked, queue.redelivered, queue.damaged)
    journal = (stage.store.log.taken_block, dict(stage.store.journal.live))
    return lines, scheduled, held, counts, stats, journal, checkpoint_records(stage.broker, 0)


@pytest.mark.compiled_only("so many take long on the sources; test_walk_against_model has fewer")
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "quorum"}])
def test_walk_over_ten_thousand_messages_leaves_no_trace(arguments: dict[str, object]) -> None:
    stage = StorageStage(FakeDisk(), window=500)
    client = Client(stage)
    client.declare("q", **{"x-delayed": True, **arguments})
    queue = stage.broker.vhost("/").queues["q"]
    queue.ready.window = 500
    queue.scheduled.window = 100
    rng = Random(5)
    for start in range(0, MANY, 100):
        frames = []
        for number in range(start, start + 100):
            properties: dict[str, object] = {
                "delivery_mode": rng.choice((1, 2)),
                "priority": rng.randrange(4),
                "message_id": f"m{number}",
            }
            if number % 5 == 0:
                properties["headers"] = {"x-delay": rng.randrange(1000, 100_000)}
            frames.append(publish(1, "q", b"body %d" % number, properties))
        client.peer.feed(b"".join(frames))
    tags = [client.get("q") for _ in range(600)]
    for taken in tags[::3]:
        assert taken is not None
        client.peer.send(3, "basic.nack", delivery_tag=taken.tag, requeue=True)
    stage.sync_all()
    before = state_of(stage, queue)
    found = walk_all(stage, queue, Filter())
    wanted = Filter()
    wanted.require_property("message_id", "m7777")
    one = walk_all(stage, queue, wanted)
    assert state_of(stage, queue) == before
    assert len({(f.state, f.message.seq) for f in found}) == len(found) == MANY
    by_state = {state: [f for f in found if f.state == state] for state in STATES}
    assert len(by_state[UNACKED]) == 400
    assert len(by_state[SCHEDULED]) == MANY // 5
    dues = [f.time_ms for f in by_state[SCHEDULED]]
    assert dues == sorted(dues)
    assert [f.message.body for f in one] == [b"body 7777"]
    drained = [m.body for m in client.drain("q")]
    assert [f.message.body for f in by_state[READY]] == drained
    stage.abandon()


def test_copies_of_one_publish_are_found_in_every_queue_of_the_log() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    for name in ("a", "b"):
        client.declare(name)
        stage.broker.vhost("/").queues[name].ready.window = 2
        client.call(2, "queue.bind", queue=name, exchange="amq.fanout", routing_key="")
    for number in range(50):
        properties: dict[str, object] = {"delivery_mode": 2, "correlation_id": f"c{number % 7}"}
        client.publish("", b"x" * 50, properties, exchange="amq.fanout")
    wanted = Filter()
    wanted.require_property("correlation_id", "c3")
    for name in ("a", "b"):
        queue = stage.broker.vhost("/").queues[name]
        assert [f.message.seq for f in walk_all(stage, queue, wanted)] == list(range(3, 50, 7))
    stage.abandon()


def test_large_bodies_are_searched_to_their_end() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    queue = stage.broker.vhost("/").queues["q"]
    queue.ready.window = 1
    for number in range(6):
        client.publish("q", b"x" * 30_000 + b"end %d" % number)
    wanted = Filter()
    wanted.require_text("end 4")
    assert [int(f.message.seq) for f in walk_all(stage, queue, wanted)] == [4]
    wanted = Filter()
    wanted.require_text("end 5")
    assert [int(f.message.seq) for f in walk_all(stage, queue, wanted)] == [5]
    stage.abandon()


@pytest.mark.parametrize("needle", ["", "x"])
def test_unreadable_messages_are_skipped(needle: str) -> None:
    stage = StorageStage(FakeDisk(), file_bytes=700)
    client = Client(stage)
    client.declare("q")
    for number in range(10):
        client.publish("q", b"%d" % number * 50 + b"x")
    disk = stage.killed()
    (name,) = [n for n in disk.names() if n.endswith(".log") and b"4" * 50 in disk.content(n)]
    disk.flip(name, disk.content(name).index(b"4" * 50) * 8)
    again = StorageStage(disk)
    queue = again.broker.vhost("/").queues["q"]
    wanted = Filter()
    if needle:
        wanted.require_text(needle)
    found = walk_all(again, queue, wanted)
    assert [int(f.message.seq) for f in found] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert (queue.ready.count, queue.damaged) == (10, 0)
    again.abandon()


def test_walk_ends_when_its_queue_is_deleted() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    for _ in range(5):
        client.publish("q", b"x")
    queue = stage.broker.vhost("/").queues["q"]
    walk = Walk(queue, stage.broker.vhost("/").stuck, Filter(), [])
    walk.step(2, 10, 1000)
    client.call(2, "queue.delete", queue="q")
    assert walk.is_done()
    stage.abandon()


def test_search_by_age_passes_over_what_came_at_another_time() -> None:
    stage = StorageStage(FakeDisk(), now_ms=1_000_000)
    client = Client(stage)
    client.declare("q")
    queue = stage.broker.vhost("/").queues["q"]
    queue.ready.window = 3
    for number in range(40):
        if number % 10 == 0:
            stage.advance(60_000)
        client.publish("q", b"%d" % number)
    stage.advance(30_000)  # ages are 30 s, 90 s, 150 s, 210 s
    for older, newer, seqs in (
        (120_000, -1, range(20)),
        (-1, 60_000, range(30, 40)),
        (60_000, 160_000, range(10, 30)),
        (300_000, -1, range(0)),
    ):
        wanted = Filter()
        if older >= 0:
            wanted.require_older(older)
        if newer >= 0:
            wanted.require_newer(newer)
        found = walk_all(stage, queue, wanted)
        assert [int(f.message.seq) for f in found] == list(seqs)
    stage.abandon()
