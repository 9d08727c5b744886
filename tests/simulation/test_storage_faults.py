"""A disk that fails, is full, or loses synced data, under a running broker."""

import errno
from random import Random

import pytest

from leveret.errors import StorageError
from leveret.testing.disk import SYNC, WRITE, FakeDisk
from tests.compat.client import Method
from tests.forms import volume
from tests.protocol.stage import closes, method, publish
from tests.simulation.storage_model import Load, check, found_in
from tests.simulation.storage_stage import PERSISTENT, Client, StorageStage, bodies_in

TINY = 4096
RESERVE = 3000


def opened(disk: FakeDisk, file_bytes: int = 1 << 20) -> tuple[StorageStage, Client]:
    stage = StorageStage(disk, file_bytes=file_bytes)
    client = Client(stage)
    client.declare("q")
    return stage, client


def test_every_confirm_comes_after_a_sync_of_what_it_confirms() -> None:
    """At the moment of each confirm, nothing that it confirms can still be lost."""
    stage, client = opened(FakeDisk(), TINY)
    for number in range(1, 101):
        syncs = stage.disk.counts[SYNC]
        client.publish("q", b"%d" % number * 20)
        assert client.confirmed[number]
        assert stage.disk.counts[SYNC] > syncs
        assert WRITE not in stage.disk.unsynced()
    stage.stop()


def test_no_confirm_leaves_while_the_block_is_on_its_way() -> None:
    stage, client = opened(FakeDisk())
    stage.holds = True
    for number in range(1, 6):
        client.publish("q", b"%d" % number)
    assert client.confirmed == {}
    stage.take_report()
    client.read()
    assert client.confirmed == {1: True}
    stage.take_report()
    client.read()
    assert client.confirmed == dict.fromkeys(range(1, 6), True)
    stage.stop()


def test_many_publishes_of_a_turn_need_one_sync() -> None:
    stage, client = opened(FakeDisk())
    syncs = stage.disk.counts[SYNC]
    client.peer.feed(b"".join(publish(1, "q", b"m", PERSISTENT) for _ in range(100)))
    client.read()
    assert len(client.confirmed) == 100
    assert stage.disk.counts[SYNC] == syncs + 1
    stage.stop()


def test_acks_alone_start_no_sync_and_follow_soon() -> None:
    stage, client = opened(FakeDisk())
    client.publish("q", b"m")
    syncs = stage.disk.counts[SYNC]
    client.get("q", no_ack=True)
    assert stage.disk.counts[SYNC] == syncs
    stage.run_timers()
    assert stage.disk.counts[SYNC] == syncs + 1
    assert bodies_in(StorageStage(stage.killed()), "q") == []


def test_transient_messages_are_confirmed_at_once_and_not_written() -> None:
    stage, client = opened(FakeDisk())
    writes = stage.disk.counts[WRITE]
    client.publish("q", b"m", {"delivery_mode": 1})
    assert client.confirmed == {1: True}
    assert stage.disk.counts[WRITE] == writes
    stage.stop()


def tx_stage() -> tuple[StorageStage, Client]:
    stage, client = opened(FakeDisk())
    client.peer.open_channel(4)
    client.call(4, "tx.select")
    return stage, client


def test_commit_is_answered_after_the_sync() -> None:
    stage, client = tx_stage()
    stage.holds = True
    client.peer.feed(publish(4, "q", b"m", PERSISTENT) + method(4, "tx.commit"))
    assert client.peer.names() == []
    stage.take_report()
    assert client.peer.names() == ["tx.commit-ok"]
    assert bodies_in(StorageStage(stage.killed()), "q") == [b"m"]


def test_every_commit_is_answered_though_the_client_did_not_wait() -> None:
    stage, client = tx_stage()
    once = publish(4, "q", b"m", PERSISTENT) + method(4, "tx.commit")
    client.peer.feed(once + once + once)
    stage.sync_all()
    assert client.peer.names() == ["tx.commit-ok"] * 3
    stage.stop()


def test_commit_on_a_disk_that_is_full_closes_the_connection() -> None:
    stage, client = tx_stage()
    stage.disk.fail_write()
    client.peer.feed(publish(4, "q", b"m", PERSISTENT) + method(4, "tx.commit"))
    assert closes(client.peer.take()) == [
        ("connection", 541, "INTERNAL_ERROR - the log cannot be written")
    ]
    stage.stop()


@pytest.mark.parametrize("nth", range(1, 8))
def test_after_a_failed_sync_nothing_is_confirmed_any_more(nth: int) -> None:
    stage, client = opened(FakeDisk(), 512)
    stage.disk.fail_sync(nth)
    bodies = [b"%d" % number * 20 for number in range(20)]
    for body in bodies:
        client.publish("q", body)
    assert stage.alarms == [True]
    assert stage.store.fault is not None
    acked = [number for number, is_ack in client.confirmed.items() if is_ack]
    assert acked == list(range(1, len(acked) + 1))
    assert len(acked) < 8
    writes = stage.disk.counts[WRITE]
    client.publish("q", b"late")
    stage.sync_all()
    assert stage.disk.counts[WRITE] == writes
    assert stage.alarms == [True]
    for seed in range(5):
        again = StorageStage(stage.disk.crash(Random(seed)))
        found = bodies_in(again, "q")
        assert found[: len(acked)] == bodies[: len(acked)]
        again.abandon()
    stage.abandon()


def test_after_a_failed_sync_every_publish_is_refused() -> None:
    """A publisher must not wait for ever."""
    stage, client = opened(FakeDisk())
    stage.disk.fail_sync()
    for number in range(1, 4):
        client.publish("q", b"%d" % number)
    stage.sync_all()
    client.read()
    assert client.confirmed == {1: False, 2: False, 3: False}
    stage.abandon()


def test_after_a_failed_sync_consumers_go_on() -> None:
    stage, client = opened(FakeDisk())
    client.publish("q", b"m")
    stage.disk.fail_sync()
    client.publish("q", b"n")
    assert [message.body for message in client.drain("q")] == [b"m", b"n"]
    stage.abandon()


@pytest.mark.parametrize("nth", range(1, 12))
def test_write_that_fails_is_as_bad_as_a_sync(nth: int) -> None:
    stage, client = opened(FakeDisk(), 512)
    stage.disk.fail_write(nth, errno.EIO)
    for number in range(20):
        client.publish("q", b"%d" % number * 20)
    assert stage.alarms == [True]
    acked = sum(client.confirmed.values())
    again = StorageStage(stage.crashed(Random(nth)))
    found = bodies_in(again, "q")
    assert found[:acked] == [b"%d" % number * 20 for number in range(acked)]
    again.abandon()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE], ids=["room", "files"])
@pytest.mark.parametrize("nth", range(1, 14))
def test_full_disk_refuses_publishes_and_goes_on_when_there_is_space(nth: int, code: int) -> None:
    """The same holds while no file descriptor is free."""
    stage, client = opened(FakeDisk(), 512)
    stage.disk.fail_write(nth, code)
    bodies = [b"%d" % number * 20 for number in range(20)]
    numbers = [client.publish("q", body) for body in bodies]
    assert stage.alarms[:1] == [True]
    stage.run_timers()
    stage.sync_all()
    client.read()
    assert stage.alarms == [True, False]
    assert sorted(client.confirmed) == numbers
    assert False in client.confirmed.values()
    client.publish("q", b"after")
    assert client.confirmed[len(numbers) + 1]
    again = StorageStage(stage.crashed(Random(nth)))
    assert again.found.cut_bytes == 0
    found = bodies_in(again, "q")
    acked = [body for body, number in zip(bodies, numbers, strict=True) if client.confirmed[number]]
    assert [body for body in found if body in {*acked, b"after"}] == [*acked, b"after"]
    assert found == [body for body in [*bodies, b"after"] if body in set(found)]
    again.abandon()


def fill(client: Client, stage: StorageStage) -> list[bytes]:
    """Publish until the disk is full."""
    bodies: list[bytes] = []
    while not stage.alarms:
        body = b"%05d" % len(bodies) * 40
        client.publish("q", body)
        bodies.append(body)
        assert len(bodies) < 1000
    return bodies


def test_consuming_frees_a_full_disk_without_help() -> None:
    disk = FakeDisk(capacity_bytes=40_000)
    stage, client = opened(disk, TINY)
    bodies = fill(client, stage)
    assert [message.body for message in client.drain("q")] == bodies
    for _ in range(3):
        stage.run_timers()
    assert stage.alarms == [True, False]
    client.publish("q", b"after")
    assert client.confirmed[client.published]
    assert disk.used_bytes() < 20_000
    again = StorageStage(stage.killed())
    assert bodies_in(again, "q") == [b"after"]
    again.stop()


@pytest.mark.parametrize("reserve_bytes", [0, TINY])
def test_consuming_frees_a_full_disk_after_a_start(reserve_bytes: int) -> None:
    """There is no room for a log file: publishes are refused, and consumers can continue."""
    disk = FakeDisk(capacity_bytes=40_000)
    stage, client = opened(disk, TINY)
    bodies = fill(client, stage)
    again = StorageStage(stage.killed(), file_bytes=TINY, reserve_bytes=reserve_bytes)
    assert again.alarms == [True]
    client = Client(again)
    client.publish("q", b"refused")
    again.run_timers()
    client.read()
    assert client.confirmed == {1: False}
    found = [message.body for message in client.drain("q")]
    assert found == [*bodies[: len(found) - 1], b"refused"]
    for _ in range(3):
        again.run_timers()
    assert again.alarms == [True, False]
    client.publish("q", b"after")
    again.sync_all()
    client.read()
    assert client.confirmed[2]
    third = StorageStage(again.killed())
    assert bodies_in(third, "q") == [b"after"]
    third.stop()


def reserved(capacity_bytes: int, file_bytes: int) -> tuple[StorageStage, Client]:
    disk = FakeDisk(capacity_bytes=capacity_bytes)
    stage = StorageStage(disk, file_bytes=file_bytes, reserve_bytes=RESERVE)
    client = Client(stage)
    client.declare("q")
    return stage, client


def test_consuming_frees_a_full_disk_whose_log_is_one_file() -> None:
    """The file that is being written is the one full of consumed messages."""
    stage, client = reserved(20_000, 64_000)
    fill(client, stage)
    client.drain("q")
    for _ in range(3):
        stage.run_timers()
    assert stage.alarms == [True, False]
    assert stage.disk.used_bytes() < 8000
    client.publish("q", b"after")
    assert client.confirmed[client.published]
    again = StorageStage(stage.killed())
    assert bodies_in(again, "q") == [b"after"]
    again.stop()


def test_block_that_finds_the_disk_full_takes_the_reserve() -> None:
    stage, client = reserved(40_000, TINY)
    assert len(stage.disk.content("reserve")) == RESERVE
    bodies = fill(client, stage)
    assert set(client.confirmed.values()) == {True}
    assert "reserve" not in stage.disk.names()
    assert [message.body for message in client.drain("q")] == bodies
    stage.sync_all()
    stage.run_timers()
    assert stage.alarms == [True, False]
    assert len(stage.disk.content("reserve")) == RESERVE
    stage.stop()


def test_reserve_that_is_there_is_kept_by_a_start() -> None:
    stage, _ = reserved(40_000, TINY)
    disk = stage.stop()
    first = disk.moment
    again = StorageStage(disk, reserve_bytes=RESERVE)
    assert again.alarms == []
    assert "reserve" in disk.names()
    assert "reserve" not in {change.name for change in disk.changes[first:]}
    again.stop()


def test_power_lost_while_a_full_disk_is_freed_loses_nothing() -> None:
    """At any moment: confirmed and unconsumed messages exist, and no file is missing."""
    stage, client = reserved(24_000, TINY)
    client.declare("kept")
    client.publish("kept", b"kept")
    first = stage.disk.moment
    fill(client, stage)
    client.drain("q")
    for _ in range(3):
        stage.run_timers()
    assert stage.alarms == [True, False]
    for moment in range(first, stage.disk.moment + 1):
        for seed in range(volume(3, 1)):
            again = StorageStage(stage.disk.crash(Random(seed), moment), reserve_bytes=RESERVE)
            assert again.found.losses == []
            assert bodies_in(again, "kept") == [b"kept"], (moment, seed)
            again.abandon()
    stage.abandon()


def test_definitions_are_there_after_a_full_disk() -> None:
    """Files that are removed to make room must not hold the only definition of a queue."""
    stage, client = opened(FakeDisk())
    client.declare("other")
    disk = stage.stop()
    stage = StorageStage(disk)
    client = Client(stage)
    disk.fail_write()
    client.publish("q", b"m")
    stage.run_timers()
    again = StorageStage(stage.killed())
    assert sorted(again.broker.vhost("/").queues) == ["other", "q"]
    again.stop()


@pytest.mark.parametrize("is_free", [True, False])
def test_node_that_stops_on_a_full_disk_can_be_started(is_free: bool) -> None:
    """The block that found no room, and the one after it, must not leave a gap."""
    stage, client = opened(FakeDisk())
    client.publish("q", b"kept")
    stage.disk.fail_write()
    client.publish("q", b"refused" * 50)
    client.publish("q", b"small")
    if not is_free:
        stage.disk.capacity_bytes = stage.disk.used_bytes()
    disk = stage.stop()
    disk.capacity_bytes = None
    again = StorageStage(disk)
    assert bodies_in(again, "q")[:1] == [b"kept"]
    again.stop()


def test_node_that_stops_on_a_full_disk_leaves_no_gap_before_a_block() -> None:
    """There is no room for the waiting block, and then there is for the one after it."""
    stage, client = opened(FakeDisk())
    client.publish("q", b"kept")
    stage.disk.fail_write()
    client.publish("q", b"refused" * 50)
    client.publish("q", b"small")
    stage.disk.fail_write()
    again = StorageStage(stage.stop())
    assert bodies_in(again, "q") == [b"kept"]
    again.stop()


def test_full_disk_holds_no_more_files_open_than_before() -> None:
    stage, client = opened(FakeDisk(), 512)
    for number in range(20):
        stage.disk.fail_write(number % 4 + 1)
        client.publish("q", b"%d" % number * 20)
        stage.run_timers()
        client.drain("q")
    stage.sync_all()
    disk = stage.disk
    stage.stop()
    assert disk.counts["create"] + disk.counts["open"] == disk.counts["close"]


@pytest.mark.parametrize("number", range(volume(20, 7)))
def test_disk_that_forgets_what_was_synced_is_never_passed_over_in_silence(
    seed: int, number: int
) -> None:
    """A start finds the state after some block, or refuses, or tells what it left out.

    That the block is an older one is the loss that nobody can notice, unless a file was removed
    since: the disk looks as it did then.
    """
    rng = Random(f"{seed} {number}")
    print(f"seed {seed}, run {number}")
    disk = FakeDisk()
    load = Load(rng)
    file_bytes = rng.choice((1024, TINY, 1 << 20))
    load.begin(StorageStage(disk, file_bytes=file_bytes, holds=True))
    load.define()
    load.run(40)
    disk.lies = True
    load.run(40)
    load.stage.abandon()
    for moment in range(disk.moment - 20, disk.moment + 1):
        try:
            stage = StorageStage(disk.crash(rng, moment), now_ms=load.stage.now_ms)
        except StorageError:
            continue
        found = found_in(stage)
        found_bad = stage.found.cut_bytes or stage.found.losses or stage.found.damage
        is_told = stage.broker.turn.faults or found_bad
        if not is_told:  # nothing was set aside as damaged or cut off
            check(load.states[stage.found.last_block], found, stage)
        stage.abandon()


def test_directory_that_was_removed_ends_the_writing_and_refuses_publishes() -> None:
    """A block in a removed directory would be confirmed, and lost with the process."""
    stage, client = opened(FakeDisk())
    client.publish("q", b"kept")
    stage.disk.has_folder = False
    client.publish("q", b"while it is noticed")
    client.publish("q", b"after")
    client.publish("q", b"later")
    stage.sync_all()
    assert client.confirmed[1]
    assert not client.confirmed[3]
    assert not client.confirmed[4]
    assert stage.alarms == [True]
    assert "was removed or replaced" in str(stage.store.fault)
    assert client.get("q") is not None
    stage.stop()


def test_peer_that_is_gone_is_not_told() -> None:
    stage, client = opened(FakeDisk())
    stage.holds = True
    client.publish("q", b"m")
    client.peer.lose()
    stage.sync_all()
    assert bodies_in(StorageStage(stage.killed()), "q") == [b"m"]


def test_closed_channel_is_not_told() -> None:
    stage, client = opened(FakeDisk())
    stage.holds = True
    client.publish("q", b"m")
    client.peer.feed(method(1, "channel.close", reply_code=200))
    stage.sync_all()
    events = [event.name for event in client.peer.take() if isinstance(event, Method)]
    assert events == ["channel.close-ok"]
    stage.stop()
