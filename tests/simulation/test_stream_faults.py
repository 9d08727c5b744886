"""Streams on a disk that is full or fails, and on a truncated log."""

import errno
from functools import cache
from random import Random

import pytest

from leveret.errors import StorageError
from leveret.journal.records import CHUNK, CURSOR, STREAM, TRIM
from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.repair import repair
from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.protocol.stage import publish
from tests.simulation.storage_model import check, found_in, read_all, start
from tests.simulation.storage_stage import Client, StorageStage
from tests.simulation.stream_model import StreamLoad
from tests.simulation.test_storage_damage import FIRST_LOG, Written, kinds_in
from tests.simulation.test_stream_files import segments

KIND: dict[str, object] = {"x-queue-type": "stream"}
SMALL: dict[str, object] = {**KIND, "x-stream-max-segment-size-bytes": 600}
SLICES = 4
PARTS = range(volume(SLICES, 1))


def opened(disk: FakeDisk, file_bytes: int, names: str = "s") -> tuple[StorageStage, Client]:
    stage = StorageStage(disk, file_bytes=file_bytes)
    client = Client(stage)
    for name in names:
        client.declare(name, **SMALL)
    return stage, client


def body(number: int) -> bytes:
    return b"%03d" % number * 20


@cache
def compact() -> Written:
    """Many records of streams in few bytes."""
    load = StreamLoad(Random(11), sizes=(0, 1, 30))
    load.begin(StorageStage(FakeDisk()))
    load.define_few()
    load.define_streams()
    actions = [action for action, weight in load.stream_actions() for _ in range(weight)]
    while min(kinds_in(load.stage.disk.content(FIRST_LOG))[kind] for kind in (TRIM, CURSOR)) < 3:
        for _ in range(20):
            load.rng.choice([*actions, load.settle_read, load.write_acks])()
    return Written(load)


def test_log_under_test_has_every_record_of_streams() -> None:
    kinds = kinds_in(compact().log)
    assert kinds[CHUNK] > 20
    assert kinds[TRIM] >= 3
    assert kinds[CURSOR] >= 3
    assert STREAM not in kinds  # it is only in checkpoints


def some_cuts(seed: int, part: int) -> list[int]:
    """All bytes of the last block, and some others, which differ with every seed."""
    print(f"seed {seed}")
    log = compact()
    rng = Random(f"{seed} {part}")
    cuts = {*rng.sample(range(len(log.log)), 30), *rng.sample(log.ends[:-1], 10)}
    cuts |= set(range(log.ends[-2] + part, len(log.log), SLICES))
    return sorted(cuts)


@pytest.mark.parametrize("part", PARTS)
def test_log_cut_anywhere_gives_the_longest_whole_prefix(seed: int, part: int) -> None:
    """The segments are lost too, and are made again from the log."""
    log = compact()
    for cut in some_cuts(seed, part):
        block = log.blocks_before(cut)
        disk = log.with_log(log.log[:cut])
        for name in segments(disk):
            disk.remove(name)
        stage = start(disk, log.load, file_bytes=1 << 20)
        whole = log.ends[block] if cut >= HEAD_BYTES else 0
        assert stage.found.last_block == block, cut
        assert stage.found.cut_bytes == cut - whole, cut
        assert stage.broker.turn.faults == [], cut
        check(log.state(block), found_in(stage), stage)
        stage.abandon()


@pytest.mark.parametrize("part", PARTS)
def test_segment_shows_that_the_end_of_the_log_is_missing(seed: int, part: int) -> None:
    """The segment holds more than the log. The start is refused, and changes nothing."""
    log = compact()
    for cut in some_cuts(seed, part):
        disk = log.with_log(log.log[:cut])
        before = disk.contents()
        with pytest.raises(StorageError, match=r"\.segment .*`leveret ctl repair`"):
            start(disk, log.load, file_bytes=1 << 20).abandon()
        assert disk.contents() == before, cut


@pytest.mark.parametrize("part", PARTS)
def test_repair_keeps_the_messages_of_a_stream_that_the_log_has_lost(seed: int, part: int) -> None:
    log = compact()
    full = log.state(len(log.ends) - 1)
    complete = 0
    for cut in some_cuts(seed, part)[::5]:
        disk = log.with_log(log.log[:cut])
        kept = sum(len(disk.content(name)) for name in segments(disk))
        report = repair(disk)
        assert not report.is_sound
        left = sum(len(disk.content(name)) for name in disk.names() if ".segment" in name)
        assert left >= kept, report.lines()
        stage = start(disk, log.load, file_bytes=1 << 20)
        assert stage.found.losses == []
        found = found_in(stage)
        known = log.state(log.blocks_before(cut)).streams
        for name, stream in full.streams.items():
            if name in known and known[name].life == stream.life:
                bodies = [body for body, *_ in found[name]]
                assert bodies == stream.bodies[len(stream.bodies) - len(bodies) :], (cut, name)
                assert bodies or not stream.bodies
                complete += len(bodies) == len(stream.bodies) > 0
        stage.abandon()
    assert complete > 0


@pytest.mark.parametrize("nth", range(1, 19))
def test_full_disk_refuses_publishes_and_goes_on_when_there_is_space(nth: int) -> None:
    """Whichever write found no room: the log, a segment, its head, a checkpoint."""
    stage, client = opened(FakeDisk(), 700)
    stage.disk.fail_write(nth)
    for number in range(20):
        client.publish("s", body(number))
    assert stage.alarms[:1] == [True]
    stage.run_timers()
    stage.sync_all()
    client.read()
    assert stage.alarms == [True, False]
    assert sorted(client.confirmed) == list(range(1, 21))
    client.publish("s", b"after")
    assert client.confirmed[21]
    found = read_all(stage, "s")
    again = StorageStage(stage.crashed(Random(nth)))
    assert read_all(again, "s") == found
    assert again.broker.turn.faults == []
    assert found == [*((n, body(n)) for n in range(20)), (20, b"after")]
    again.abandon()


@pytest.mark.parametrize("nth", range(1, 10))
def test_sync_that_fails_ends_the_writing_and_loses_nothing_confirmed(nth: int) -> None:
    stage, client = opened(FakeDisk(), 700)
    stage.disk.fail_sync(nth)
    for number in range(20):
        client.publish("s", body(number))
    acked = sum(client.confirmed.values())
    assert acked < 20
    assert stage.store.fault is not None
    seen = read_all(stage, "s")
    again = StorageStage(stage.crashed(Random(nth)), file_bytes=700)
    found = read_all(again, "s")
    assert found[: len(seen)] == seen
    assert len(found) >= acked
    assert found == [(number, body(number)) for number in range(len(found))]
    again.abandon()


@pytest.mark.parametrize("reserve_bytes", [0, 3000])
@pytest.mark.parametrize("nth", range(1, 24))
def test_sync_that_finds_no_room_loses_nothing_confirmed(nth: int, reserve_bytes: int) -> None:
    """Some file systems report a full disk at the sync; a second sync proves nothing."""
    disk = FakeDisk()
    stage = StorageStage(disk, file_bytes=700, reserve_bytes=reserve_bytes)
    client = Client(stage)
    client.declare("s", **SMALL)
    disk.fail_sync(nth, errno.ENOSPC)
    for number in range(20):
        client.publish("s", body(number))
    stage.sync_all()
    client.read()
    acked = [number for number, is_ack in client.confirmed.items() if is_ack]
    seen = read_all(stage, "s")
    stage.abandon()
    for seed in range(6):
        again = StorageStage(disk.crash(Random(seed)), file_bytes=700)
        assert again.broker.turn.faults == []
        found = read_all(again, "s")
        assert found[: len(seen)] == seen
        assert {body(number - 1) for number in acked} <= {data for _, data in found}
        again.abandon()


def test_node_that_starts_on_a_full_disk_keeps_what_was_confirmed() -> None:
    """Its log files may hold data that no checkpoint covers: they stay until there is one."""
    stage, client = opened(FakeDisk(), 1 << 20)
    for number in range(20):
        client.publish("s", body(number))
    killed = stage.killed()
    for nth in range(1, 30):
        disk = killed.copy()
        disk.fail_write(nth, errno.ENOSPC)
        try:
            second = StorageStage(disk)
        except (OSError, StorageError):
            third = StorageStage(disk.copy())
        else:
            third = StorageStage(second.killed())
        assert read_all(third, "s") == [(n, body(n)) for n in range(20)], nth
        assert third.broker.turn.faults == []
        third.abandon()


def test_publishes_to_many_streams_need_one_sync() -> None:
    stage, client = opened(FakeDisk(), 1 << 20, "abcdefgh")
    syncs = stage.disk.counts["sync"]
    client.peer.feed(b"".join(publish(1, name, body(7)) for name in "abcdefgh" * 5))
    client.read()
    assert len(client.confirmed) == 40
    assert stage.disk.counts["sync"] == syncs + 1
    for name in "abcdefgh":
        assert read_all(stage, name) == [(offset, body(7)) for offset in range(5)]
    stage.stop()


def test_copies_in_queues_before_and_behind_a_stream_are_read_back() -> None:
    """A full chunk is written between the copies of one message."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.call(2, "exchange.declare", exchange="e", type="fanout", durable=True)
    client.declare("a")
    client.declare("m", **KIND)
    client.declare("z")
    for name in "amz":
        client.call(2, "queue.bind", queue=name, exchange="e")
    big = [bytes([65 + number]) * 700_000 for number in range(5)]
    persistent: dict[str, object] = {"delivery_mode": 2}
    client.peer.feed(b"".join(publish(1, "", each, persistent, exchange="e") for each in big))
    client.read()
    assert len(client.confirmed) == 5
    again = StorageStage(stage.killed())
    client = Client(again)
    assert [message.body for message in client.drain("a")] == big
    assert [message.body for message in client.drain("z")] == big
    assert read_all(again, "m") == list(enumerate(big))
    again.stop()


def test_clock_that_is_set_back_changes_nothing_but_times() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=2000)
    client = Client(stage)
    client.declare("s", **{**SMALL, "x-max-age": "100s"})
    for number in range(10):
        client.publish("s", body(number))
    disk = stage.killed()
    stage = StorageStage(disk, file_bytes=2000, now_ms=stage.now_ms - 3_600_000)
    client = Client(stage)
    for number in range(10, 20):
        client.publish("s", body(number))
    again = StorageStage(stage.killed(), now_ms=stage.now_ms - 3_600_000)
    assert read_all(again, "s") == [(n, body(n)) for n in range(20)]
    assert again.broker.turn.faults == []
    again.stop()


def test_retention_by_age_is_applied_after_a_start_without_publishes() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("s", **{**KIND, "x-max-age": "100s"})
    for number in range(10):
        client.publish("s", body(number))
        stage.advance(20_000)
    again = StorageStage(stage.killed(), now_ms=stage.now_ms)
    again.advance(1)
    kept = [offset for offset, _ in read_all(again, "s")]
    assert kept[-1] == 9
    again.advance(1000_000)
    later = [offset for offset, _ in read_all(again, "s")]
    assert later[-1] == 9
    assert len(later) < len(kept) < 10
    again.sync_all()
    third = StorageStage(again.killed(), now_ms=again.now_ms)
    assert [offset for offset, _ in read_all(third, "s")] == later
    third.stop()
