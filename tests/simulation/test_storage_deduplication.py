"""Deduplication on disk: keys last as long as their messages, and not longer."""

from random import Random
from typing import Any

import pytest

from leveret.engine.deduplication.deduplication import Deduplication
from leveret.engine.deduplication.recent_keys import PAGE_KEYS
from leveret.testing.disk import FakeDisk
from tests.protocol.stage import method, publish
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

WINDOW_MS = 60_000


def key(value: object, *, mode: int = 2) -> dict[str, Any]:
    return {"delivery_mode": mode, "headers": {"x-deduplication-id": value}}


def opened(disk: FakeDisk, **options: Any) -> tuple[StorageStage, Client]:
    """A durable queue `q`, and a durable exchange `x` that leads to a queue `r`."""
    stage = StorageStage(disk, **options)
    client = Client(stage)
    memory = {"x-deduplication": {"window_ms": WINDOW_MS, "size": 3 * PAGE_KEYS}}
    client.declare("q", **memory)
    client.declare("r")
    fields: dict[str, Any] = {"exchange": "x", "type": "direct", "durable": True}
    client.call(2, "exchange.declare", **fields, arguments=memory)
    client.call(2, "queue.bind", queue="r", exchange="x", routing_key="k")
    return stage, client


def memories(stage: StorageStage) -> list[Deduplication]:
    vhost = stage.broker.vhost("/")
    found = [vhost.queues["q"].deduplication, vhost.exchanges["x"].deduplication]
    return [memory for memory in found if memory is not None]


def publish_both(client: Client, body: bytes, properties: dict[str, Any]) -> None:
    client.publish("q", body, properties)
    client.publish("k", body, properties, exchange="x")


@pytest.mark.parametrize("end", ["stop", "killed"])
def test_keys_survive_the_end_of_the_node(end: str) -> None:
    stage, client = opened(FakeDisk())
    publish_both(client, b"1", key("a"))
    client.drain("q")  # the key outlives its message
    stage.sync_all()
    disk = stage.stop() if end == "stop" else stage.killed()
    again, client = opened(disk, now_ms=stage.now_ms + 10)
    publish_both(client, b"2", key("a"))
    publish_both(client, b"3", key("b"))
    assert client.confirmed == dict.fromkeys(range(1, 5), True)
    assert [message.body for message in client.drain("q")] == [b"3"]
    assert [message.body for message in client.drain("r")] == [b"1", b"3"]
    again.stop()


def test_start_loads_all_keys_although_there_is_no_room_for_them() -> None:
    """They were accepted. A node that begins to lead a cluster starts in the same way."""
    stage, client = opened(FakeDisk())
    for value in "abc":
        publish_both(client, b"1", key(value))
    assert stage.broker.vhost("/").key_room.keys == 6
    stage.broker.vhost("/").key_room.keys_max = 2
    again, client = opened(stage.killed(), now_ms=stage.now_ms)
    room = again.broker.vhost("/").key_room
    room.keys_max = 2
    assert (room.keys, room.objects) == (6, 2)
    for value in "abc":
        publish_both(client, b"2", key(value))
    publish_both(client, b"3", key("d"))
    assert client.confirmed == dict.fromkeys(range(1, 7), True) | {7: False, 8: False}
    again.stop()


def test_keys_keep_their_times() -> None:
    stage, client = opened(FakeDisk())
    publish_both(client, b"1", key("a"))
    disk = stage.killed()
    for passed_ms, expected in [(WINDOW_MS - 1, [b"1"]), (WINDOW_MS, [b"1", b"2"])]:
        again, client = opened(disk.copy(), now_ms=stage.now_ms + passed_ms)
        publish_both(client, b"2", key("a"))
        assert [message.body for message in client.drain("q")] == expected
        assert [message.body for message in client.drain("r")] == expected
        again.stop()


def test_old_keys_are_dropped_after_a_start() -> None:
    stage, client = opened(FakeDisk())
    publish_both(client, b"1", key("a"))
    again, _ = opened(stage.killed(), now_ms=stage.now_ms + 2 * WINDOW_MS)
    assert [memory.count() for memory in memories(again)] == [1, 1]
    again.advance(1)
    assert [memory.count() for memory in memories(again)] == [0, 0]
    again.stop()


def test_keys_of_transient_messages_end_with_them() -> None:
    stage, client = opened(FakeDisk())
    publish_both(client, b"1", key("a", mode=1))
    publish_both(client, b"2", key("a", mode=1))
    assert [memory.count() for memory in memories(stage)] == [1, 1]
    again, client = opened(stage.stop())
    publish_both(client, b"3", key("a", mode=1))
    assert [message.body for message in client.drain("q")] == [b"3"]
    assert [message.body for message in client.drain("r")] == [b"3"]
    again.stop()


def test_keys_survive_checkpoints_and_many_starts(seed: int) -> None:
    """More keys than fit into a page; most of them only in the checkpoint."""
    print(f"seed {seed}")
    rng = Random(seed)
    stage, client = opened(FakeDisk(), file_bytes=1 << 18)
    count = PAGE_KEYS + 700
    client.peer.feed(b"".join(publish(1, "q", b"m", key(n)) for n in range(count)))
    client.peer.feed(method(3, "basic.consume", queue="q", no_ack=True))
    client.read()
    disk = stage.killed()
    for _ in range(3):
        stage, client = opened(disk, file_bytes=1 << 18)
        assert memories(stage)[0].count() == count
        for number in rng.sample(range(count), 50):
            client.publish("q", b"again", key(number))
        client.publish("q", b"new", key(f"{count}"))
        count += 1
        assert bodies_in(stage, "q").count(b"again") == 0
        disk = stage.stop() if rng.random() < 0.5 else stage.killed()


def test_keys_of_what_was_deleted_do_not_come_back() -> None:
    stage, client = opened(FakeDisk())
    publish_both(client, b"1", key("a"))
    client.call(2, "queue.delete", queue="q")
    client.call(2, "exchange.delete", exchange="x")
    again, client = opened(stage.killed())
    assert [memory.count() for memory in memories(again)] == [0, 0]
    publish_both(client, b"2", key("a"))
    assert [message.body for message in client.drain("q")] == [b"2"]
    once_more, client = opened(again.killed())
    assert [memory.count() for memory in memories(once_more)] == [1, 1]
    once_more.stop()


def test_ids_of_exchanges_and_queues_are_never_the_same_after_a_start() -> None:
    stage, client = opened(FakeDisk())
    again, client = opened(stage.killed())
    client.declare("new", **{"x-deduplication": {}})
    queues = again.broker.vhost("/").queues.values()
    ids = [int(queue.ledger.id) for queue in queues] + [int(memories(again)[1].id)]
    assert len(set(ids)) == len(ids) == 4
    again.stop()


@pytest.mark.parametrize("target", ["queue", "exchange"])
def test_a_duplicate_is_not_confirmed_before_the_first_is_on_disk(target: str) -> None:
    route = ("q", "") if target == "queue" else ("k", "x")
    stage, client = opened(FakeDisk())
    other = Client(stage)
    stage.holds = True
    client.publish(route[0], b"1", key("a"), route[1])
    other.publish(route[0], b"2", key("a"), route[1])
    client.read()
    other.read()
    assert (client.confirmed, other.confirmed) == ({}, {})
    stage.sync()
    client.read()
    other.read()
    assert (client.confirmed, other.confirmed) == ({1: True}, {1: True})
    name = "q" if target == "queue" else "r"
    assert bodies_in(StorageStage(stage.killed()), name) == [b"1"]


def test_a_duplicate_in_the_same_turn_waits_with_the_first() -> None:
    stage, client = opened(FakeDisk())
    stage.holds = True
    client.peer.feed(publish(1, "q", b"1", key("a")) + publish(1, "q", b"2", key("a")))
    client.read()
    assert client.confirmed == {}
    stage.sync()
    client.read()
    assert client.confirmed == {1: True, 2: True}
    assert bodies_in(StorageStage(stage.killed()), "q") == [b"1"]


def test_a_duplicate_at_an_exchange_that_is_not_durable_waits_too() -> None:
    stage, client = opened(FakeDisk())
    memory: dict[str, Any] = {"arguments": {"x-deduplication": {}}}
    client.call(2, "exchange.declare", exchange="y", type="fanout", **memory)
    client.call(2, "queue.bind", queue="r", exchange="y")
    stage.holds = True
    client.peer.feed(publish(1, "", b"1", key("a"), exchange="y") * 2)
    client.read()
    assert client.confirmed == {}
    stage.sync()
    client.read()
    assert client.confirmed == {1: True, 2: True}
    stage.stop()


def test_a_duplicate_of_what_is_on_disk_is_confirmed_at_once() -> None:
    stage, client = opened(FakeDisk())
    client.publish("q", b"1", key("a"))
    stage.holds = True
    client.publish("q", b"2", key("a"))
    assert client.confirmed == {1: True, 2: True}
    stage.stop()


def test_a_key_does_not_outlive_a_block_that_was_never_written() -> None:
    stage, client = opened(FakeDisk())
    before = stage.disk.copy()
    stage.holds = True
    client.publish("q", b"1", key("a"))
    stage.sync()
    stage.stop()
    again, client = opened(before)
    client.publish("q", b"2", key("a"))
    assert [message.body for message in client.drain("q")] == [b"2"]
    again.stop()


def test_a_failed_sync_confirms_no_duplicate() -> None:
    stage, client = opened(FakeDisk())
    stage.disk.fail_sync()
    client.publish("q", b"1", key("a"))
    client.publish("q", b"2", key("a"))
    assert client.confirmed == {1: False, 2: False}
    stage.abandon()


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_duplicate_confirmed_after_a_failed_sync_and_a_restart_survives_a_power_loss(
    nth: int,
) -> None:
    """The operating system still shows the block of the failed sync, but has not written it."""
    stage, client = opened(FakeDisk())
    stage.disk.fail_sync(nth)
    bodies = [b"%d" % number for number in range(nth)]
    for body in bodies:
        client.publish("q", body, key(body.decode()))
    assert client.confirmed[nth] is False
    again, client = opened(stage.killed())
    client.publish("q", b"again", key(bodies[-1].decode()))
    assert client.confirmed == {1: True}
    for seed in range(8):
        last = StorageStage(again.disk.crash(Random(seed)))
        assert bodies_in(last, "q") == bodies
        last.abandon()
    again.abandon()


def test_a_retry_after_a_full_disk_is_confirmed_when_the_first_is_written() -> None:
    stage, client = opened(FakeDisk())
    stage.disk.fail_write()
    client.publish("q", b"1", key("a"))
    assert client.confirmed == {1: False}
    client.publish("q", b"1 again", key("a"))
    assert client.confirmed == {1: False}
    stage.run_timers()
    client.read()
    assert client.confirmed == {1: False, 2: True}
    assert bodies_in(StorageStage(stage.killed()), "q") == [b"1"]


def test_a_commit_of_duplicates_waits_for_the_first() -> None:
    stage, client = opened(FakeDisk())
    client.peer.open_channel(4)
    client.call(4, "tx.select")
    stage.holds = True
    client.publish("q", b"1", key("a"))
    client.peer.feed(publish(4, "q", b"2", key("a")) + method(4, "tx.commit"))
    client.read()
    assert client.others == []
    stage.sync()
    client.read()
    assert [event.name for event in client.others] == ["tx.commit-ok"]
    stage.stop()


def test_crashes_lose_no_confirmed_key_and_keep_none_without_its_message(seed: int) -> None:
    """At any moment: a confirmed message exists once, and a known key has its message."""
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(25):
        stage, client = opened(FakeDisk(), file_bytes=4096)
        values: dict[int, int] = {}  # by number of the publish
        stage.holds = True
        for _ in range(rng.randrange(1, 40)):
            value = rng.randrange(12)
            values[client.publish("q", b"%d" % value, key(value))] = value
            if rng.random() < 0.4:
                stage.take_report()
                client.read()
        confirmed = {values[number] for number, is_ack in client.confirmed.items() if is_ack}
        disk = stage.crashed(rng)
        again, client = opened(disk, file_bytes=4096)
        known = int(memories(again)[0].count())
        found = [int(message.body) for message in client.drain("q")]
        assert len(set(found)) == len(found)
        assert confirmed <= set(found)
        assert known == len(found)
        for value in range(12):
            client.publish("q", b"%d" % value, key(value))
        rest = [int(message.body) for message in client.drain("q")]
        assert sorted(found + rest) == list(range(12))
        again.stop()
