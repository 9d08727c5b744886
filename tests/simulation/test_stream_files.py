"""Segment files: which exist, and what happens to a stream with damaged or missing files."""

from collections import Counter
from random import Random

import pytest

from leveret.errors import StorageError
from leveret.storage.blocks import HEAD_BYTES
from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.protocol.stage import publish
from tests.simulation.storage_model import read_all
from tests.simulation.storage_stage import PERSISTENT, Client, StorageStage

STREAM: dict[str, object] = {"x-queue-type": "stream"}
SMALL: dict[str, object] = {**STREAM, "x-stream-max-segment-size-bytes": 1500}


def segments(disk: FakeDisk) -> list[str]:
    """Segment files, oldest first."""
    names = [name for name in disk.names() if name.endswith(".segment")]
    return sorted(names, key=lambda name: int(name.split("-")[2].split(".")[0]))


def filled(count: int, arguments: dict[str, object] = SMALL, file_bytes: int = 4096) -> FakeDisk:
    """Return the disk of a cleanly stopped stream with `count` messages, one chunk each."""
    stage = StorageStage(FakeDisk(), file_bytes=file_bytes)
    client = Client(stage)
    client.declare("s", **arguments)
    for number in range(count):
        client.publish("s", body(number))
    assert set(client.confirmed.values()) == {True}
    return stage.stop()


def body(number: int) -> bytes:
    return b"%04d" % number * 25


def restarted(disk: FakeDisk) -> FakeDisk:
    """Start and stop once more, so that everything is in segments and nothing in the log."""
    return StorageStage(disk, file_bytes=4096).stop()


def test_segments_are_named_by_their_first_offset() -> None:
    disk = filled(40)
    names = segments(disk)
    firsts = [int(name.split("-")[2].split(".")[0]) for name in names]
    stage = StorageStage(disk)
    assert len(names) > 3
    for first in firsts:
        assert (first, body(first)) in read_all(stage, "s")
    stage.stop()


def test_deleted_stream_leaves_no_files() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("s", **SMALL)
    for number in range(30):
        client.publish("s", body(number))
    client.call(2, "queue.delete", queue="s")
    stage.sync_all()
    assert segments(stage.disk) == []
    stage.stop()


def test_kill_while_a_stream_is_deleted_leaves_no_unknown_segment() -> None:
    """Its messages, its deletion and the next checkpoint are on their way at the same time."""
    stage = StorageStage(FakeDisk(), holds=True, file_bytes=600)
    client = Client(stage)
    client.declare("s", **SMALL)
    client.declare("q")
    stage.sync_all()
    first_moment = stage.disk.moment
    client.peer.feed(
        publish(1, "q", body(0), properties=PERSISTENT)
    )  # further changes wait for this block
    client.peer.feed(b"".join(publish(1, "s", body(number)) for number in range(20)))
    client.call(2, "queue.delete", queue="s")
    stage.sync_all()
    stage.abandon()
    for moment in range(first_moment, stage.disk.moment + 1):
        again = StorageStage(stage.disk.killed(moment))
        assert again.found.losses == [], moment
        again.abandon()


@pytest.mark.parametrize("held", [True, False])
def test_stream_deleted_while_its_messages_are_on_their_way_leaves_no_files(held: bool) -> None:
    """The log's thread makes its first segment after the delete."""
    stage = StorageStage(FakeDisk(), holds=held)
    client = Client(stage)
    client.declare("s", **SMALL)
    client.declare("q")
    stage.sync_all()
    client.peer.feed(b"".join(publish(1, "s", body(number)) for number in range(20)))
    client.call(2, "queue.delete", queue="s")
    stage.sync_all()
    client.publish("q", b"another block")
    stage.sync_all()
    client.publish("q", b"and one more")
    stage.sync_all()
    assert segments(stage.disk) == []
    stage.stop()


def test_forgotten_segments_are_removed() -> None:
    limits = {**SMALL, "x-max-length-bytes": 4000}
    stage = StorageStage(FakeDisk(), file_bytes=4096)
    client = Client(stage)
    client.declare("s", **limits)
    for number in range(200):
        client.publish("s", body(number))
    stage.sync_all()
    names = segments(stage.disk)
    assert 2 <= len(names) <= 4
    assert sum(len(stage.disk.content(name)) for name in names) < 4000 + 1500
    offsets = [offset for offset, _ in read_all(stage, "s")]
    assert offsets == list(range(offsets[0], 200))
    again = StorageStage(stage.killed())
    assert [offset for offset, _ in read_all(again, "s")] == offsets
    again.stop()


def test_log_files_of_streams_are_removed_when_a_checkpoint_is_younger() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=4096)
    client = Client(stage)
    client.declare("s", **SMALL)
    for number in range(300):
        client.publish("s", body(number))
    stage.sync_all()
    assert len([name for name in stage.disk.names() if name.endswith(".log")]) <= 2
    assert read_all(stage, "s") == [(number, body(number)) for number in range(300)]
    stage.stop()


def test_no_more_files_are_open_than_before() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=2048)
    client = Client(stage)
    client.declare("s", **SMALL)
    for number in range(40):
        stage.disk.fail_write(number % 5 + 1)
        client.publish("s", body(number))
        stage.run_timers()
    stage.sync_all()
    read_all(stage, "s")
    disk = stage.disk
    stage.stop()
    assert disk.counts["create"] + disk.counts["open"] == disk.counts["close"]


@pytest.mark.parametrize("which", ["first", "middle", "last", "all"])
def test_missing_segment_is_reported_and_the_rest_can_be_read(which: str) -> None:
    disk = restarted(filled(60))
    names = segments(disk)
    firsts = [int(name.split("-")[2].split(".")[0]) for name in names] + [60]
    gone = {"first": [0], "middle": [2], "last": [len(names) - 1], "all": range(len(names))}[which]
    for index in gone:
        disk.remove(names[index])
    want = [
        (number, body(number))
        for number in range(60)
        if not any(firsts[index] <= number < firsts[index + 1] for index in gone)
    ]
    stage = StorageStage(disk)
    assert read_all(stage, "s") == want
    assert stage.broker.turn.faults
    client = Client(stage)
    client.publish("s", b"after")
    assert client.confirmed == {1: True}
    assert read_all(stage, "s") == [*want, (60, b"after")]
    again = StorageStage(stage.killed())
    assert read_all(again, "s") == [*want, (60, b"after")]
    again.stop()


@pytest.mark.parametrize("size", [0, 10, HEAD_BYTES, HEAD_BYTES + 20, 700])
def test_last_segment_that_was_cut_is_reported(size: int) -> None:
    disk = restarted(filled(60))
    name = segments(disk)[-1]
    first = int(name.split("-")[2].split(".")[0])
    disk.put(name, disk.content(name)[:size])
    stage = StorageStage(disk)
    found = read_all(stage, "s")
    assert found == [(number, body(number)) for number in range(len(found))]
    assert len(found) >= first
    assert stage.broker.turn.faults
    client = Client(stage)
    client.publish("s", b"after")
    assert read_all(stage, "s") == [*found, (60, b"after")]
    again = StorageStage(stage.killed())
    assert read_all(again, "s") == [*found, (60, b"after")]
    again.stop()


def test_segment_of_another_stream_is_not_taken_for_its_own() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=4096)
    client = Client(stage)
    client.declare("a", **SMALL)
    client.declare("b", **SMALL)
    for number in range(30):
        client.publish("a", b"a" + body(number))
        client.publish("b", b"b" + body(number))
    disk = restarted(stage.stop())
    names = segments(disk)
    first, second = (name for name in names if name.endswith("-0.segment"))
    one, other = disk.content(first), disk.content(second)
    disk.put(first, other)
    disk.put(second, one)
    stage = StorageStage(disk)
    for name in ("a", "b"):
        found = read_all(stage, name)
        assert {body[:1] for _, body in found} == {name.encode()}
        assert len(found) < 30
    assert len(stage.broker.turn.faults) >= 2
    stage.stop()


def test_no_bit_of_a_segment_that_was_turned_goes_unnoticed(seed: int) -> None:
    """No wrong body, and nothing missing without a report. Every seed flips other bits."""
    print(f"seed {seed}")
    disk = restarted(filled(24))
    want = [(number, body(number)) for number in range(24)]
    outcomes: Counter[str] = Counter()
    rng = Random(seed)
    for name in segments(disk):
        bits = len(disk.content(name)) * 8
        head = range(0, HEAD_BYTES * 8, volume(1, 3))
        for bit in [*head, *range(rng.randrange(200), bits, volume(200, 600))]:
            outcomes[_with_bit(disk, name, bit, want)] += 1
    assert set(outcomes) <= {"reported", "unharmed", "refused"}, outcomes
    assert outcomes["reported"] > outcomes["unharmed"] + outcomes["refused"], outcomes


def _with_bit(disk: FakeDisk, name: str, bit: int, want: list[tuple[int, bytes]]) -> str:
    damaged = disk.copy()
    damaged.flip(name, bit)
    try:
        stage = StorageStage(damaged)
    except StorageError:
        return "refused"
    found = read_all(stage, "s")
    faults = stage.broker.turn.faults
    stage.abandon()
    if found == want:
        return "unharmed"
    if set(found) - set(want) or [o for o, _ in found] != sorted({o for o, _ in found}):
        return f"wrong body at bit {bit} of {name}"
    return "reported" if faults else f"silent at bit {bit} of {name}"
