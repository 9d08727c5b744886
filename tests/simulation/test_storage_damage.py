"""A log that was truncated, filled with zeros or garbage, or has flipped bits.

The longest valid prefix counts. Invalid bytes at the end of the log are cut off and reported. Any
other invalid bytes are damage, which no start ignores silently: the affected queue is told about
its loss, or the node does not start.
"""

import copy
import struct
from collections import Counter
from functools import cache
from itertools import pairwise
from random import Random

import pytest

from leveret import build_info
from leveret.engine.broker import Broker
from leveret.errors import StorageError
from leveret.journal.records import (
    COPY,
    DEFINE,
    GONE,
    MARK,
    MESSAGE,
    RECORD_HEAD_BYTES,
    RETURNED,
    STAMP_BYTES,
)
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES
from leveret.storage.disk import DiskFile
from leveret.storage.file_names import SYNCED
from leveret.storage.log_reader import LogReader
from leveret.storage.recovery import recover
from leveret.storage.recovery_result import RecoveryResult
from leveret.storage.repair import ReadOnlyDisk, ReadOnlyFile
from leveret.storage.segment_files import SegmentFiles
from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.simulation.storage_model import Found, Load, State, check, found_in, start
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

# `make damage` cuts every log at every byte and flips every bit of every file. The suite tries a
# sample, a smaller one in the interpreted form, which is slower.
SLICES = 16
# One byte in eight; one in sixteen in the interpreted form.
CUTS = range(0, SLICES, 8 if build_info.is_compiled() else 16)
# Six of sixteen places around the ends of blocks; three in the interpreted form. There are four
# places at each end, and these slices have all of them.
ENDS = range(0, SLICES, 3 if build_info.is_compiled() else 7)
BIT_SLICES = volume(32, 96)
# One bit of each second byte; of each twelfth byte in the interpreted form.
BITS = (0, 18) if build_info.is_compiled() else (9,)
FIRST_LOG = "0000000000000001.log"


class Written:
    """A log of one file, and its state after each block."""

    def __init__(self, load: Load) -> None:
        load.stage.sync_all()
        load.hear()
        load.stage.abandon()
        self.load = load
        self.disk = load.stage.disk.killed()
        self.log = self.disk.content(FIRST_LOG)
        self.ends = block_ends(self.log)

    def with_log(self, log: bytes) -> FakeDisk:
        """Return the disk of a node that lost power while its last block was written.

        It has no mark: a mark would show that later blocks were on disk.
        """
        made = self.disk.copy()
        made.put(FIRST_LOG, log)
        made.remove(SYNCED)
        return made

    def start(self, log: bytes) -> StorageStage:
        return start(self.with_log(log), self.load, file_bytes=1 << 20)

    def state(self, block: int) -> State:
        return self.load.states[block]

    def blocks_before(self, cut: int) -> int:
        """Return the number of whole blocks before an offset."""
        return sum(end <= cut for end in self.ends[1:])


@cache
def written() -> Written:
    """A log with all kinds of queues."""
    load = Load(Random(7))
    load.begin(StorageStage(FakeDisk()))
    load.define()
    while sum(kinds_in(load.stage.disk.content(FIRST_LOG)).values()) < 240:
        load.run(10)
    return Written(load)


@cache
def compact() -> Written:
    """Many records in few bytes."""
    load = Load(Random(8), sizes=(0, 1, 3))
    load.begin(StorageStage(FakeDisk()))
    load.define_few()
    while sum(kinds_in(load.stage.disk.content(FIRST_LOG)).values()) < 200:
        load.run_few(10)
    return Written(load)


@cache
def sixteen_kib() -> Written:
    """Few records in many bytes, the last block a small one."""
    load = Load(Random(9), sizes=(1000, 2000, 3000))
    load.begin(StorageStage(FakeDisk()))
    load.define_queue("plain")
    while len(load.stage.disk.content(FIRST_LOG)) < 13_000:
        load.publish()
    load.sizes = (16_384 - 200 - len(load.stage.disk.content(FIRST_LOG)),)
    load.publish()
    load.sizes = (1,)
    load.publish()
    return Written(load)


def block_ends(log: bytes) -> list[int]:
    """Return the ends of the head and of each block of a log file."""
    ends = [HEAD_BYTES]
    while ends[-1] < len(log):
        size = int.from_bytes(log[ends[-1] : ends[-1] + 4], "big")
        ends.append(ends[-1] + BLOCK_HEAD_BYTES + size)
    return ends


def kinds_in(log: bytes) -> Counter[int]:
    """Count the records of a log by kind."""
    kinds: Counter[int] = Counter()
    ends = block_ends(log)
    for first, end in pairwise(ends):
        at = first + BLOCK_HEAD_BYTES
        while at < end:
            kinds[log[at]] += 1
            at += 5 + int.from_bytes(log[at + 1 : at + 5], "big")
    return kinds


def messages_in(state: State) -> int:
    left = state.after_start()
    return sum(len(queue.entries) for queue in left.queues.values()) + len(left.held)


def test_log_under_test_has_every_kind_of_record() -> None:
    for log in (written(), compact()):
        kinds = kinds_in(log.log)
        assert set(kinds) >= {MESSAGE, COPY, GONE, RETURNED, MARK, DEFINE}
        assert sum(kinds.values()) >= 200


@pytest.mark.parametrize("part", CUTS)
def test_log_cut_anywhere_gives_the_longest_whole_prefix(part: int) -> None:
    log = compact()
    for cut in range(part, len(log.log), SLICES):
        stage = log.start(log.log[:cut])
        block = log.blocks_before(cut)
        whole = log.ends[block] if cut >= HEAD_BYTES else 0
        assert stage.found.last_block == block, cut
        assert stage.found.cut_bytes == cut - whole, cut
        assert stage.found.messages == messages_in(log.state(block)), cut
        stage.abandon()


@pytest.mark.parametrize("part", ENDS)
def test_log_that_was_cut_goes_on(part: int) -> None:
    """Around the ends of all blocks: start, write more, start again."""
    log = written()
    cuts = {end + step for end in log.ends for step in (-1, 0, 1, 17)}
    for cut in sorted(cut for cut in cuts if HEAD_BYTES <= cut < len(log.log))[part::SLICES]:
        first = log.start(log.log[:cut])
        found = found_in(first)
        check(log.state(log.blocks_before(cut)), found, first)
        first.abandon()

        second = log.start(log.log[:cut])
        client = Client(second)
        client.declare("more")
        client.publish("more", b"appended")
        assert client.confirmed == {1: True}
        third = start(second.killed(), log.load, file_bytes=1 << 20)
        assert third.found.cut_bytes == 0
        assert found_in(third) == found | {"more": [(b"appended", True, 0, 0, 0)]}
        third.abandon()


@pytest.mark.parametrize("tail", ["zeros", "garbage", "old blocks"])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 500, 5000])
def test_tail_that_is_no_block_is_cut_and_reported(tail: str, size: int) -> None:
    log = written()
    for end in log.ends[5::40]:
        prefix = log.log[:end]
        waste = {
            "zeros": bytes(size),
            "garbage": Random(size).randbytes(size),
            "old blocks": log.log[HEAD_BYTES : min(end, HEAD_BYTES + size)],
        }[tail]
        stage = log.start(prefix + waste)
        assert stage.found.cut_bytes == len(waste)
        check(log.state(log.blocks_before(end)), found_in(stage), stage)
        stage.abandon()


@pytest.mark.parametrize("blocks", [1, 2, 7, 8, 9, 30])
@pytest.mark.parametrize("filling", ["zeros", "garbage", "gone"])
def test_hole_in_the_middle_is_refused(blocks: int, filling: str) -> None:
    log = written()
    for first in (0, 10, 40):
        start_at, stop_at = log.ends[first], log.ends[first + blocks]
        hole = {
            "zeros": bytes(stop_at - start_at),
            "garbage": Random(1).randbytes(stop_at - start_at),
            "gone": b"",
        }[filling]
        with pytest.raises(StorageError, match="`leveret ctl repair`"):
            log.start(log.log[:start_at] + hole + log.log[stop_at:]).abandon()


@pytest.mark.parametrize("part", BITS)
def test_flipped_bit_is_noticed(part: int) -> None:
    """A flip in the last block: the block is cut off and reported. A flip in an earlier block: the
    queue that lost a message is told. If that queue cannot be found, the node does not start.
    """
    log = sixteen_kib()
    last = log.ends[-2]
    whole = messages_in(log.state(len(log.ends) - 1))
    turned = bytearray(log.log)
    fates: Counter[str] = Counter()
    for bit in range(part, len(log.log) * 8, BIT_SLICES):
        turned[bit // 8] ^= 1 << bit % 8
        broker = Broker(1)
        disk = OneFile(bytes(turned))
        try:
            found = recover(disk, broker, LogReader(disk.read_at), SegmentFiles(disk)).run()
        except StorageError as fault:
            fates[_refusal(log, bit // 8, str(fault))] += 1
            continue
        finally:
            turned[bit // 8] ^= 1 << bit % 8
        fates[_fate(log, found, broker, bit // 8, whole)] += 1
    assert set(fates) <= {"cut", "told", "head", "refused"}, fates
    assert fates["told"] > 50 * fates["refused"], fates
    assert fates["cut"] == sum(
        bit // 8 >= last for bit in range(part, len(log.log) * 8, BIT_SLICES)
    )


MARK_BYTES = 24  # payload of a CAME record, which is the last record of its block


class OneFile(ReadOnlyDisk):
    """A directory with one log file: cheap enough to be made for every bit."""

    def __init__(self, log: bytes) -> None:
        self._log = log

    def names(self) -> list[str]:
        return [FIRST_LOG]

    def open(self, name: str) -> DiskFile:
        return ReadOnlyFile(self._log, name)

    def read_at(self, number: int, offset: int, size: int) -> bytes:
        return self._log[offset : offset + size]


def _refusal(log: Written, at: int, text: str) -> str:
    """Heads of files, definitions, and the ends of records cannot be guessed."""
    if at < HEAD_BYTES:
        return "refused" if "format" in text else "refused without reason"
    block = max(end for end in log.ends if end <= at)
    is_definition = block == log.ends[0]
    # Also queue and sequence number.
    is_record_head = at - block < BLOCK_HEAD_BYTES + STAMP_BYTES + RECORD_HEAD_BYTES + 16
    to_end = min(end for end in log.ends if end > at) - at
    is_mark_head = (
        0 <= to_end - 1 - MARK_BYTES < RECORD_HEAD_BYTES
    )  # where the times of messages are
    named = "`leveret ctl repair`" in text
    is_head = is_record_head or is_mark_head
    return "refused" if named and (is_definition or is_head) else "refused without reason"


def _fate(log: Written, found: RecoveryResult, broker: Broker, at: int, whole: int) -> str:
    last = log.ends[-2]
    queue = broker.vhost("/").queues["plain"]
    if at >= last:
        is_cut = found.cut_bytes == len(log.log) - last and not found.damage
        return "cut" if is_cut and queue.ready.count == whole - 1 else "not cut"
    (damage,) = found.damage
    if at < HEAD_BYTES:
        is_whole = (damage.start, damage.end) == (0, HEAD_BYTES) and queue.ready.count == whole
        return "head" if is_whole else "head is not all"
    if not damage.start <= at < damage.end:
        return "elsewhere"
    if queue.ready.count != whole - 1:
        return "more lost than one block"
    first = damage.start + BLOCK_HEAD_BYTES + STAMP_BYTES + RECORD_HEAD_BYTES
    if first <= at < first + 8:  # it seems to belong to no queue: only the node reports it
        return "told"
    if first + 8 <= at < first + 16:  # it seems to be another message, which can be read
        return "told" if len(queue.damage) == 1 else "passed over"
    return "told" if queue.damaged == 1 and len(queue.damage) == 1 else "passed over"


@pytest.mark.parametrize("part", range(volume(2, 1)))
def test_no_wrong_body_is_delivered_whatever_bit_was_turned(part: int) -> None:
    log = sixteen_kib()
    want = {entry.body for entry in log.state(len(log.ends) - 1).queues["plain"].entries.values()}
    for bit in range(part * 31, len(log.log) * 8, 31 * volume(4, 12)):
        disk = log.with_log(log.log)
        disk.flip(FIRST_LOG, bit)
        try:
            stage = start(disk, log.load, file_bytes=1 << 20)
        except StorageError:
            continue
        bodies = {body for body, *_ in found_in(stage)["plain"]}
        assert bodies <= want
        assert len(want) - len(bodies) <= 1
        stage.abandon()


def test_bit_turned_in_the_last_block_costs_that_block_alone() -> None:
    log = sixteen_kib()
    for bit in range(log.ends[-2] * 8, len(log.log) * 8, 97):
        disk = log.with_log(log.log)
        disk.flip(FIRST_LOG, bit)
        stage = start(disk, log.load, file_bytes=1 << 20)
        check(log.state(len(log.ends) - 2), found_in(stage), stage)
        stage.abandon()


@pytest.mark.parametrize("ending", [".log", ".checkpoint", ".index"])
def test_bit_turned_in_an_older_file_is_never_delivered(ending: str) -> None:
    """Full files with indexes and checkpoint, after a clean stop."""
    stage = StorageStage(FakeDisk(), file_bytes=2048)
    client = Client(stage)
    client.declare("q")
    want = [b"%03d" % number * 30 for number in range(60)]
    for body in want:
        client.publish("q", body)
    disk = stage.stop()
    names = [name for name in disk.names() if name.endswith(ending)]
    for name in names[:2]:
        for bit in range(0, len(disk.content(name)) * 8, volume(61, 61 * 4)):
            told = _try_with_bit(disk, name, bit, want)
            assert told in ("unharmed", "refused", "reported"), (name, bit, told)


def _try_with_bit(disk: FakeDisk, name: str, bit: int, want: list[bytes]) -> str:
    """Return the result of a flipped bit."""
    damaged = disk.copy()
    damaged.flip(name, bit)
    try:
        stage = StorageStage(damaged, file_bytes=2048)
    except StorageError:
        return "refused"
    except (IndexError, ValueError):
        return "not understood"  # an unexpected error
    try:
        found = bodies_in(stage, "q")
    except StorageError:
        return "refused"
    except (struct.error, AssertionError, IndexError, ValueError):
        return "wrong body"  # not even readable content
    finally:
        stage.abandon()
    if found == want:
        return "unharmed"
    if stage.found.cut_bytes or (stage.broker.turn.faults and not set(found) - set(want)):
        return "reported"
    return "wrong body" if set(found) - set(want) else "missing"


def test_checkpoint_that_was_damaged_is_refused() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=2048)
    client = Client(stage)
    client.declare("q")
    for number in range(40):
        client.publish("q", b"%d" % number * 20)
    disk = stage.stop()
    (name,) = [name for name in disk.names() if name.endswith(".checkpoint")]
    for bit in range(0, len(disk.content(name)) * 8, 7):
        damaged = disk.copy()
        damaged.flip(name, bit)
        with pytest.raises(StorageError):
            StorageStage(damaged)


def test_checking_a_disk_twice_gives_the_same_result() -> None:
    """Checks the test itself: the same disk gives the same answer twice."""
    log = written()
    answers: list[Found] = []
    for _ in range(2):
        stage = log.start(log.log)
        answers.append(copy.deepcopy(found_in(stage)))
        stage.abandon()
    assert answers[0] == answers[1]


def many_files() -> tuple[FakeDisk, list[str], list[bytes]]:
    """A disk whose log files all have messages of `q`, and one file with a message of `other`."""
    stage = StorageStage(FakeDisk(), file_bytes=2048)
    client = Client(stage)
    client.declare("q")
    client.declare("other")
    bodies = [b"%03d" % number * 30 for number in range(60)]
    for body in bodies:
        client.publish("q", body)
    client.publish("other", b"elsewhere")
    disk = stage.stop()
    return disk, [name for name in disk.names() if name.endswith(".log")], bodies


@pytest.mark.parametrize("index", [0, 1, 2])
def test_log_file_that_is_missing_is_refused(index: int) -> None:
    """A file with live messages that somebody removed, or that a lying disk forgot.

    Without its index nobody can know what stood in it.
    """
    disk, names, _ = many_files()
    disk.remove(names[index])
    disk.remove(names[index].replace(".log", ".index"))
    with pytest.raises(StorageError, match=f"{names[index]} is missing"):
        StorageStage(disk).abandon()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_messages_of_a_log_file_that_is_missing_are_reported_and_the_rest_starts(
    index: int,
) -> None:
    disk, names, bodies = many_files()
    disk.remove(names[index])
    # The second start reports the same as the first.
    stage = StorageStage(StorageStage(disk).stop())
    (loss,) = stage.found.losses
    found = bodies_in(stage, "q")
    lost = len(bodies) - len(found)
    assert 0 < lost < 30
    assert loss.startswith(f"queue 'q' in vhost '/': {lost} of its messages")
    assert loss.endswith(f"{names[index]} is missing")
    assert found == [body for body in bodies if body in set(found)]
    assert bodies_in(stage, "other") == [b"elsewhere"]
    stage = StorageStage(stage.stop())
    assert stage.found.losses == [loss]
    Client(stage).call(2, "queue.delete", queue="q")
    stage = StorageStage(StorageStage(stage.stop()).stop())
    assert stage.found.losses == []
    stage.stop()


def test_log_file_that_is_back_has_its_messages_again() -> None:
    disk, names, bodies = many_files()
    content = disk.content(names[1])
    disk.remove(names[1])
    disk = StorageStage(disk).stop()
    disk.put(names[1], content)
    stage = StorageStage(disk)
    assert stage.found.losses == []
    assert bodies_in(stage, "q") == bodies
    stage.stop()


def test_scheduled_messages_of_a_log_file_that_is_missing_are_reported() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=2048)
    client = Client(stage)
    client.declare("q", **{"x-delayed": True})
    for number in range(40):
        client.publish("q", b"%d" % number * 20, {"delivery_mode": 2, "headers": {"x-delay": 9999}})
    disk = stage.stop()
    disk.remove(FIRST_LOG)
    stage = StorageStage(disk)
    assert len(stage.found.losses) == 1
    stage.advance(10_000)
    assert 0 < len(bodies_in(stage, "q")) < 40
    stage.stop()


@pytest.mark.parametrize("has_index", [True, False])
def test_log_file_that_has_become_shorter_is_never_passed_over(has_index: bool) -> None:
    """Cut between two blocks it looks whole, but the checkpoint knows its size."""
    disk, names, bodies = many_files()
    content = disk.content(names[1])
    disk.put(names[1], content[: block_ends(content)[-2]])
    if not has_index:
        disk.remove(names[1].replace(".log", ".index"))
        with pytest.raises(StorageError, match=f"{names[1]} had {len(content)} bytes"):
            StorageStage(disk).abandon()
        return
    stage = StorageStage(disk)
    assert stage.found.losses[0].startswith(f"{names[1]} had {len(content)} bytes")
    assert set(bodies_in(stage, "q")) < set(bodies)
    stage.stop()


def test_file_that_was_removed_tells_of_blocks_that_the_disk_forgot() -> None:
    """Its messages were acked in the last block, which is lost: that must be reported."""
    stage = StorageStage(FakeDisk(), file_bytes=2048)
    client = Client(stage)
    client.declare("q")
    client.declare("other")
    before = stage.disk
    while FIRST_LOG in stage.disk.names():
        client.publish("q", b"m" * 100)
        if "0000000000000002.log" in stage.disk.names():
            before = stage.disk.copy()
            client.drain("q")
            stage.sync_all()
    disk = stage.killed()
    newest = max(name for name in disk.names() if name.endswith(".log"))
    disk.put(newest, before.content(newest))
    disk.remove(SYNCED)  # the mark would tell the same
    with pytest.raises(StorageError, match=r"the log was on disk up to block .* are missing"):
        StorageStage(disk).abandon()


def test_end_of_a_file_that_a_checkpoint_covers_is_not_a_torn_write() -> None:
    """A checkpoint is written after everything before it is synced."""
    stage = StorageStage(FakeDisk(), file_bytes=2048)
    client = Client(stage)
    client.declare("q")
    while len([name for name in stage.disk.names() if name.endswith(".checkpoint")]) == 0 or (
        "0000000000000002.log" not in stage.disk.names()
    ):
        client.publish("q", b"m" * 100)
    disk = stage.killed()
    assert "0000000000000002.checkpoint" in disk.names()
    for name in ("0000000000000002.log", "0000000000000001.index"):
        if name in disk.names():
            disk.remove(name)
    disk.put(FIRST_LOG, disk.content(FIRST_LOG)[:-10])
    with pytest.raises(StorageError):
        StorageStage(disk).abandon()
