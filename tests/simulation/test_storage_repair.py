"""Damage in the middle of the log: affected queues, unaffected queues, and the repair."""

from random import Random

import pytest

from leveret.errors import StorageError
from leveret.storage.dump import dump
from leveret.storage.file_names import SYNCED, damaged_bytes_name, log_name
from leveret.storage.repair import RESCUED, RepairReport, repair
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_model import Load, found_in, start
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

FIRST_LOG = "0000000000000001.log"


def two_queues(file_bytes: int = 1 << 20) -> FakeDisk:
    """Messages 0 to 9 in `left` and in `right`, each in its own block; the node was killed."""
    stage = StorageStage(FakeDisk(), file_bytes=file_bytes)
    client = Client(stage)
    client.declare("left")
    client.declare("right")
    for number in range(10):
        for name in ("left", "right"):
            client.publish(name, f"{name}-{number}".encode() * 5)
    return stage.killed()


def want(name: str, *missing: int) -> list[bytes]:
    return [f"{name}-{n}".encode() * 5 for n in range(10) if n not in missing]


def damage(disk: FakeDisk, text: bytes) -> tuple[str, int]:
    """Flip a bit in the log file that holds these bytes; return its name and the position."""
    for name in disk.names():
        if name.endswith(".log") and text in disk.content(name):
            at = disk.content(name).index(text)
            disk.flip(name, at * 8)
            return name, at
    raise AssertionError(f"nothing holds {text!r}")


def is_clean(stage: StorageStage) -> bool:
    queues = [queue for queue in stage.broker.slots.queues if queue is not None]
    is_told = any(queue.damaged or queue.damage for queue in queues)
    return not (stage.found.damage or stage.found.cut_bytes or stage.broker.turn.faults or is_told)


def started_twice(disk: FakeDisk) -> StorageStage:
    """Start twice after a repair, both times without damage; return the second stage."""
    first = StorageStage(disk)
    assert is_clean(first)
    second = StorageStage(first.killed())
    assert is_clean(second)
    return second


def lost(report: RepairReport) -> dict[str, int]:
    return {loss.queue: loss.messages for loss in report.losses}


def test_queue_concerned_is_told_and_everything_else_starts() -> None:
    disk = two_queues()
    damage(disk, b"left-3")
    stage = StorageStage(disk)
    left, right = (stage.broker.vhost("/").queues[name] for name in ("left", "right"))
    assert (left.damaged, right.damaged) == (1, 0)
    assert "damaged from byte" in left.damage[0]
    assert not right.damage
    assert any("queue 'left'" in fault for fault in stage.broker.turn.faults)
    assert bodies_in(stage, "right") == want("right")
    assert bodies_in(stage, "left") == want("left", 3)


def test_quarantine_lasts_until_the_repair_and_the_damaged_file_stays() -> None:
    """Restarts, consuming everything, purging: messages that are set aside stay so."""
    disk = two_queues()
    name, _ = damage(disk, b"left-3")
    damaged = disk.content(name)
    for _ in range(3):
        stage = StorageStage(disk, file_bytes=2048)
        client = Client(stage)
        client.drain("left")
        client.drain("right")
        client.call(2, "queue.purge", queue="left")
        assert stage.broker.vhost("/").queues["left"].damaged == 1
        for _ in range(30):
            client.publish("right", b"filling" * 20)
        stage.sync_all()
        disk = stage.killed()
        assert disk.content(name) == damaged


def test_queue_that_is_deleted_takes_its_damage_along() -> None:
    disk = two_queues()
    name, _ = damage(disk, b"left-3")
    stage = StorageStage(disk)
    client = Client(stage)
    client.call(2, "queue.delete", queue="left")
    client.drain("right")
    stage.sync_all()
    again = StorageStage(stage.killed())
    assert list(again.broker.vhost("/").queues) == ["right"]
    report = repair(again.killed())
    assert lost(report) == {}
    assert list(report.ranges) == [name]


def test_lost_acks_bring_messages_back_and_the_queue_says_so() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    for number in range(3):
        client.publish("q", b"%d" % number)
    stage.sync_all()
    before = len(stage.disk.content(FIRST_LOG))
    assert client.get("q", no_ack=True) is not None
    stage.sync_all()
    client.publish("q", b"3")
    disk = stage.killed()
    disk.flip(FIRST_LOG, (before + 30) * 8)
    again = StorageStage(disk)
    assert "acks" in again.broker.vhost("/").queues["q"].damage[0]
    messages = Client(again).drain("q")
    assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]
    assert all(message.fields["redelivered"] for message in messages)


def test_damage_among_definitions_is_refused_and_names_the_repair() -> None:
    disk = two_queues()
    damage(disk, b"right")  # the first occurrence is in its definition
    with pytest.raises(StorageError, match="`leveret ctl repair`"):
        StorageStage(disk).abandon()


def test_repair_takes_the_damage_out_and_says_what_is_lost() -> None:
    disk = two_queues()
    name, at = damage(disk, b"left-3")
    before = disk.content(name)
    looked = disk.copy()
    report = repair(looked, dry_run=True)
    assert looked.contents() == disk.contents()
    assert lost(report) == {"left": 1}
    ((first, end),) = report.ranges[name]
    assert first < at < end

    assert lost(repair(disk)) == {"left": 1}
    side = damaged_bytes_name(name, first)
    assert disk.content(side) == before[first:end]
    assert [entry.kind for entry in dump(disk.content(side), side)] == [
        "damage",
        "stamp",
        "message",
    ]
    stage = started_twice(disk)
    assert bodies_in(stage, "left") == want("left", 3)
    assert bodies_in(stage, "right") == want("right")
    assert repair(stage.killed()).is_sound


def test_repair_of_sound_directories_changes_nothing() -> None:
    disk = two_queues(file_bytes=500)
    before = disk.contents()
    report = repair(disk)
    assert report.is_sound
    assert report.lines() == ["the log is sound"]
    assert disk.contents() == before


def test_torn_end_is_no_damage() -> None:
    disk = two_queues()
    disk.put(FIRST_LOG, disk.content(FIRST_LOG)[:-10])
    disk.remove(SYNCED)  # power was lost before the block was on disk
    report = repair(disk)
    assert report.is_sound
    assert "torn write" in report.lines()[0]
    assert bodies_in(StorageStage(disk), "right") == want("right", 9)


def test_damaged_segment_is_not_called_sound() -> None:
    """A repair cannot bring the messages of a damaged chunk back, but it reports which are lost."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("s", **{"x-queue-type": "stream"})
    for number in range(5):
        client.publish("s", b"m%d" % number * 20)
    disk = StorageStage(stage.stop()).stop()  # the segment is older than the checkpoint
    assert repair(disk).lines() == ["the log is sound"]
    disk.flip("stream-1-0.segment", disk.content("stream-1-0.segment").index(b"m3") * 8)
    report = repair(disk)
    assert not report.is_whole
    (told, last) = report.lines()
    assert told.startswith("stream-1-0.segment: damaged from byte ")
    assert "from offset 3 on: a chunk has been changed" in told
    assert last == "the log needs no repair; readers skip the damaged messages above"


def test_directory_in_use_is_refused() -> None:
    stage = StorageStage(two_queues())
    with pytest.raises(StorageError, match="in use"):
        repair(stage.disk)


def test_damage_in_a_full_file_is_set_aside_when_it_is_read() -> None:
    """The index tells the positions of messages: the file itself is not read at a start."""
    disk = two_queues(file_bytes=700)
    name, _ = damage(disk, b"left-3")
    assert name != max(n for n in disk.names() if n.endswith(".log"))
    stage = StorageStage(disk)
    assert not stage.found.damage
    assert bodies_in(stage, "right") == want("right")
    assert bodies_in(stage, "left") == want("left", 3)
    assert stage.broker.vhost("/").queues["left"].damaged == 1
    assert name in stage.broker.vhost("/").queues["left"].damage[0]
    stage.sync_all()
    again = stage.killed()
    assert lost(repair(again)) == {"left": 1}
    assert started_twice(again).broker.vhost("/").queues["left"].ready.count == 0


def test_bytes_of_what_is_left_are_known_where_everything_in_the_log_was_lost() -> None:
    disk = two_queues(file_bytes=700)
    for number in range(10):
        damage(disk, f"left-{number}".encode())
    stage = StorageStage(disk)
    queue = stage.broker.vhost("/").queues["left"]
    assert bodies_in(stage, "left") == []
    assert (queue.damaged, queue.ready.count, queue.ready.body_bytes) == (10, 0, 0)


def test_scheduled_message_that_cannot_be_read_is_set_aside() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=700)
    client = Client(stage)
    later = {"x-delayed-type": "fanout"}
    client.declare("q")
    client.call(
        2, "exchange.declare", exchange="later", type="x-delayed-message", durable=True,
        arguments=later,
    )  # fmt: skip
    client.call(2, "queue.bind", queue="q", exchange="later")
    for number in range(8):
        headers = {"delivery_mode": 2, "headers": {"x-delay": 60_000}}
        client.publish("", b"late-%d" % number * 10, headers, exchange="later")
    disk = stage.killed()
    damage(disk, b"late-2")
    mended = disk.copy()
    again = StorageStage(disk, now_ms=stage.now_ms)
    again.advance(60_000)
    holding = again.broker.vhost("/").holding["later"]
    assert (len(holding.scheduled), holding.damaged) == (0, 1)
    want = [b"late-%d" % number * 10 for number in range(8) if number != 2]
    assert bodies_in(again, "q") == want
    assert lost(repair(mended)) == {"later": 1}
    assert len(started_twice(mended).broker.vhost("/").holding["later"].scheduled) == 7


def test_damaged_checkpoint_is_refused_and_a_repair_keeps_what_can_be_read() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=700)
    client = Client(stage)
    for name in ("left", "right"):
        client.declare(name)
    for number in range(10):
        for name in ("left", "right"):
            client.publish(name, f"{name}-{number}".encode() * 5)
        if number == 0:
            client.get("left", no_ack=True)
    disk = stage.killed()
    (name,) = [name for name in disk.names() if name.endswith(".checkpoint")]
    at = disk.content(name).index(b"right")
    disk.flip(name, at * 8)
    with pytest.raises(StorageError, match="`leveret ctl repair`"):
        StorageStage(disk.copy()).abandon()
    report = repair(disk)
    assert any("come back" in note for note in report.notes)
    assert damaged_bytes_name(name, 0) in disk.names()
    again = started_twice(disk)
    assert bodies_in(again, "left") == want("left")  # an acked message came back
    assert bodies_in(again, "sight") == want("right")  # the readable part of its name


def test_messages_whose_definition_is_lost_are_rescued() -> None:
    disk = two_queues()
    log = disk.content(FIRST_LOG)
    at = log.index(b"right")
    start_at = max(e.offset for e in dump(log, FIRST_LOG) if e.kind == "block" and e.offset < at)
    size = 16 + int.from_bytes(log[start_at : start_at + 4], "big")
    disk.put(FIRST_LOG, log[:start_at] + bytes(size) + log[start_at + size :])
    with pytest.raises(StorageError, match="`leveret ctl repair`"):
        StorageStage(disk.copy()).abandon()
    repair(disk)
    stage = started_twice(disk)
    assert bodies_in(stage, "left") == want("left")
    assert bodies_in(stage, f"{RESCUED}2") == want("right")


def test_crash_at_any_moment_of_a_repair_loses_nothing_more() -> None:
    disk = two_queues(file_bytes=700)
    damage(disk, b"left-3")
    damage(disk, b"right-7")
    begun = disk.moment
    repair(disk)
    for moment in range(begun, disk.moment + 1):
        for seed in range(3):
            broken = disk.crash(Random(seed), moment)
            repair(broken)
            stage = StorageStage(broken)
            assert is_clean(stage)
            assert bodies_in(stage, "left") == want("left", 3)
            assert bodies_in(stage, "right") == want("right", 7)
            stage.abandon()


@pytest.mark.parametrize("part", range(4))
def test_any_damage_is_mended(part: int, seed: int) -> None:
    """Holes, garbage and flipped bits anywhere, in a log with all kinds of records."""
    print(f"seed {seed}")
    rng = Random(seed + part)
    load = Load(Random(11))
    load.begin(StorageStage(FakeDisk(), file_bytes=3000 if part % 2 else 1 << 20))
    load.define()
    load.run(150)
    whole = load.stage.killed()
    names = [n for n in whole.names() if n.endswith((".log", ".index"))]
    known = {body for bodies in found_bodies(whole, load).values() for body in bodies}
    for _ in range(12):
        disk = whole.copy()
        for _ in range(rng.randrange(1, 3)):
            spoil(disk, rng.choice(names), rng)
        report = repair(disk)
        print(report.lines())
        first = start(disk, load, file_bytes=1 << 20)
        assert not first.found.damage  # a start cuts off a torn end
        second = start(first.killed(), load, file_bytes=1 << 20)
        assert is_clean(second)
        found = found_in(second)
        assert {body for bodies in found.values() for body, *_ in bodies} <= known | spent(load)
        second.abandon()


def spoil(disk: FakeDisk, name: str, rng: Random) -> None:
    data = disk.content(name)
    at, size = rng.randrange(len(data)), rng.randrange(1, 400)
    filling = rng.choice((rng.randbytes(size), bytes(size), b"", None))
    if filling is None:
        disk.flip(name, at * 8 + rng.randrange(8))
    else:
        disk.put(name, data[:at] + filling + data[at + size :])


def found_bodies(disk: FakeDisk, load: Load) -> dict[str, list[bytes]]:
    stage = start(disk.copy(), load, file_bytes=1 << 20)
    found = {name: [body for body, *_ in bodies] for name, bodies in found_in(stage).items()}
    stage.abandon()
    return found


def spent(load: Load) -> set[bytes]:
    """Bodies that were acked: they come back if acks are lost."""
    found: set[bytes] = set()
    for state in load.states.values():
        for queue in state.queues.values():
            found |= set(queue.entries)
        found |= {entry.body for entry in state.held}
    return found


def test_names_of_side_files_tell_where_the_bytes_stood() -> None:
    assert damaged_bytes_name(log_name(7), 1234) == "0000000000000007.log.damaged-1234"
