"""Scheduled messages that are only in the log: order, restarts, damage, disk space."""

from random import Random
from typing import Final

import pytest

from leveret.storage.file_names import log_name
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import (
    PERSISTENT,
    Client,
    StorageStage,
    bodies_in,
    positions_by_file,
)

WINDOW: Final = 3
TRANSIENT: Final[dict[str, object]] = {"delivery_mode": 1}


def started(disk: FakeDisk, now_ms: int | None = None, *, file_bytes: int = 4096) -> StorageStage:
    if now_ms is None:
        return StorageStage(disk, file_bytes=file_bytes, window=WINDOW)
    return StorageStage(disk, file_bytes=file_bytes, window=WINDOW, now_ms=now_ms)


def schedule(client: Client, body: bytes, delay_ms: int, properties: dict[str, object]) -> None:
    client.publish("q", body, {**properties, "headers": {"x-delay": delay_ms}})


@pytest.mark.parametrize("number", range(6))
def test_scheduled_messages_come_in_order_none_early_none_lost(seed: int, number: int) -> None:
    """Random delays, random restarts, persistent messages against a sorted list."""
    print(f"seed {seed}, run {number}")
    rng = Random(f"{seed} {number}")
    stage = started(FakeDisk())
    client = Client(stage)
    client.declare("q", **{"x-delayed": True})
    model: list[tuple[int, int]] = []
    serial = 0
    for _ in range(40):
        for _ in range(rng.randrange(12)):
            serial += 1
            delay_ms = rng.choice((1, 5, rng.randrange(1, 3000)))
            model.append((stage.now_ms + delay_ms, serial))
            schedule(client, b"%d" % serial, delay_ms, PERSISTENT)
        if rng.random() < 0.2:
            stage = started(stage.stop() if rng.random() < 0.5 else stage.killed(), stage.now_ms)
            client = Client(stage)
        ms = rng.randrange(400)
        due = sorted(entry for entry in model if entry[0] <= stage.now_ms + ms)
        model = [entry for entry in model if entry not in set(due)]
        stage.advance(ms)
        found = [int(message.body) for message in client.drain("q")]
        assert found == [entry[1] for entry in due]
        stage.sync_all()
    stage.advance(4000)
    assert [int(message.body) for message in client.drain("q")] == [e[1] for e in sorted(model)]
    stage.stop()


@pytest.mark.parametrize("properties", [PERSISTENT, TRANSIENT])
def test_few_scheduled_messages_are_in_memory(properties: dict[str, object]) -> None:
    stage = started(FakeDisk())
    client = Client(stage)
    client.declare("q", **{"x-delayed": True})
    for number in range(50):
        schedule(client, b"%d" % number, 1000 - number, properties)
    queue = stage.broker.vhost("/").queues["q"]
    assert len(queue.scheduled.messages()) == WINDOW
    assert len(queue.scheduled) == 50
    assert queue.scheduled.body_bytes == sum(len(b"%d" % number) for number in range(50))
    stage.advance(1000)
    assert [m.body for m in client.drain("q")] == [b"%d" % n for n in reversed(range(50))]
    stage.sync_all()
    assert (len(queue.scheduled), queue.scheduled.body_bytes) == (0, 0)
    assert not positions_by_file(stage)
    assert not any(stage.store.journal.live.values())
    stage.stop()


def test_start_reads_no_bodies() -> None:
    stage = started(FakeDisk(), file_bytes=1 << 20)
    client = Client(stage)
    client.declare("q", **{"x-delayed": True})
    for number in range(100):
        schedule(client, b"%d" % number, 1000, PERSISTENT)
    again = started(stage.killed(), stage.now_ms)
    assert len(again.broker.vhost("/").queues["q"].scheduled) == 100
    assert not again.broker.vhost("/").queues["q"].scheduled.messages()
    again.advance(999)
    assert bodies_in(again, "q") == []
    again.advance(1)
    assert bodies_in(again, "q") == [b"%d" % n for n in range(100)]
    again.stop()


def test_retried_messages_wait_in_the_log_with_their_counts() -> None:
    stage = started(FakeDisk())
    client = Client(stage)
    retry = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 500, "x-delivery-limit": 9}
    client.declare("q", **retry)
    for number in range(10):
        client.publish("q", b"%d" % number)
    for _ in range(2):
        messages = [client.get("q") for _ in range(10)]
        for message in messages:
            assert message is not None
            tag = message.fields["delivery_tag"]
            client.call(3, "basic.reject", delivery_tag=tag, requeue=True)
        queue = stage.broker.vhost("/").queues["q"]
        assert queue.scheduled.in_log.count == 10 - WINDOW
        stage.advance(1000)
    stage.sync_all()
    for final in (stage, started(stage.disk.copy(), stage.now_ms)):
        final.advance(1000)
        found = Client(final).drain("q")
        assert [message.body for message in found] == [b"%d" % n for n in range(10)]
        for message in found:
            assert message.content is not None
            headers = message.content.properties["headers"]
            assert "x-delivery-count" in repr(headers)
        final.stop()


def test_damage_sets_messages_aside_and_the_rest_comes() -> None:
    stage = started(FakeDisk(), file_bytes=1500)
    client = Client(stage)
    client.declare("q", **{"x-delayed": True})
    for number in range(30):
        schedule(client, b"body %02d" % number, 1000, PERSISTENT)
    disk = stage.killed()
    name = log_name(2)
    hurt = disk.content(name)
    disk.flip(name, hurt.index(b"body ") * 8)
    again = started(disk, stage.now_ms, file_bytes=1 << 20)
    again.advance(1000)
    found = bodies_in(again, "q")
    want = [b"body %02d" % n for n in range(30)]
    assert found == [body for body in want if body in found]
    first = hurt.index(b"body ")
    assert [body for body in want if body not in found] == [hurt[first : first + 7]]
    queue = again.broker.vhost("/").queues["q"]
    assert again.broker.turn.faults
    assert sum(int(run.left()) for run in queue.ready.damaged) == 30 - len(found)
    assert (len(queue.scheduled), queue.scheduled.body_bytes) == (0, 0)
    again.stop()


def test_deleted_queue_gives_its_files_back() -> None:
    stage = started(FakeDisk(), file_bytes=1500)
    client = Client(stage)
    client.declare("q", **{"x-delayed": True})
    for number in range(60):
        schedule(client, b"%d" % number, 1000, PERSISTENT if number % 2 else TRANSIENT)
    client.call(2, "queue.delete", queue="q")
    assert not any(stage.store.journal.live.values())
    stage.advance(1000)
    stage.stop()


def test_due_messages_do_not_overtake_those_in_the_log() -> None:
    stage = started(FakeDisk())
    client = Client(stage)
    client.declare("q", **{"x-delayed": True})
    for properties in (TRANSIENT, PERSISTENT):
        schedule(client, b"due", 10, properties)
    for number in range(10):
        client.publish("q", b"%d" % number)
    stage.advance(10)
    assert bodies_in(stage, "q") == [*[b"%d" % n for n in range(10)], b"due", b"due"]
    stage.sync_all()
    assert not any(stage.store.journal.live.values())
    stage.stop()
