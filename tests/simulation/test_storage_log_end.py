"""A log whose end is missing: every start notices it, refuses, and changes nothing.

A log that is cut exactly between two blocks looks whole. The mark `synced`, the checkpoint and the
segments of streams know what was there. `tests.simulation.damage` tries every place; here are the
ends of all blocks and a sample of the others.
"""

from random import Random

import pytest

from leveret.errors import StorageError
from leveret.storage.file_names import SYNCED, log_name
from leveret.storage.repair import repair
from leveret.storage.store import OS
from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.simulation.damage import (
    FAULTS,
    FILE_BYTES,
    REFUSED,
    TOLD,
    block_ends,
    cuts,
    fate,
    flipped,
    scenario,
    stale,
    with_file,
)
from tests.simulation.storage_model import read_all
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

FIRST_LOG = log_name(1)
STREAM: dict[str, object] = {"x-queue-type": "stream"}
# Distances of the tried cuts and bits. Every seed begins at another one; `make damage` tries all.
CUTS = volume(17, 51)
BITS = volume(97, 291)


def filled(ending: str, messages: int = 20) -> FakeDisk:
    """Messages in a queue and in a stream, each in a block of its own, in one log file."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    client.declare("s", **STREAM)
    for number in range(messages):
        client.publish("q", b"q%d" % number)
        client.publish("s", b"s%d" % number)
    return stage.stop() if ending == "stopped" else stage.killed()


def cut_blocks(disk: FakeDisk, count: int) -> None:
    """Cut the first log file exactly before its last blocks."""
    log = disk.content(FIRST_LOG)
    disk.put(FIRST_LOG, log[: block_ends(log)[-1 - count]])


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_log_cut_between_two_blocks_is_refused_and_nothing_is_changed(ending: str) -> None:
    disk = filled(ending)
    cut_blocks(disk, 15)
    before = disk.contents()
    text = r"the log was on disk up to block .* later blocks are missing: `leveret ctl repair`"
    for _ in range(2):
        with pytest.raises(StorageError, match=text):
            StorageStage(disk.copy())
    with pytest.raises(StorageError, match=text):
        StorageStage(disk)
    assert disk.contents() == before


def test_flipped_bit_in_the_last_block_is_damage_and_not_a_torn_write() -> None:
    """The damaged block was synced, so its message was confirmed. The queue reports the loss."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    for number in range(20):
        client.publish("q", b"q%d" % number)
    disk = stage.killed()
    disk.flip(FIRST_LOG, disk.content(FIRST_LOG).index(b"q19") * 8)
    stage = StorageStage(disk)
    assert stage.found.cut_bytes == 0
    assert bodies_in(stage, "q") == [b"q%d" % number for number in range(19)]
    assert stage.broker.vhost("/").queues["q"].damaged == 1
    stage.stop()


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_every_log_file_cut_at_the_end_of_every_block_is_noticed(ending: str) -> None:
    case = scenario(ending)
    for name in case.logs():
        content = case.disk.content(name)
        for end in block_ends(content)[:-1]:
            assert fate(case, with_file(case.disk, name, content[:end])) in (REFUSED, TOLD)


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_log_cut_anywhere_is_noticed(ending: str, seed: int) -> None:
    print(f"seed {seed}")
    case = scenario(ending)
    for name, size, disk in list(cuts(ending))[seed % CUTS :: CUTS]:
        assert fate(case, disk) in (REFUSED, TOLD), (name, size)


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_no_flipped_bit_of_any_file_loses_a_message_in_silence(ending: str, seed: int) -> None:
    print(f"seed {seed}")
    case = scenario(ending)
    for name, bit, disk in flipped(ending, BITS, seed % BITS):
        assert fate(case, disk) not in FAULTS, (name, bit)


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_no_file_with_older_content_loses_a_message_in_silence(ending: str) -> None:
    case = scenario(ending)
    for name, moment, disk in stale(ending):
        assert fate(case, disk) not in FAULTS, (name, moment)


@pytest.mark.parametrize("ending", ["killed", "stopped"])
@pytest.mark.parametrize("has_mark", [True, False])
def test_repair_accepts_the_missing_end_and_keeps_the_stream(ending: str, has_mark: bool) -> None:
    disk = filled(ending)
    cut_blocks(disk, 15)
    if not has_mark:
        disk.remove(SYNCED)
    shown = repair(disk, dry_run=True)
    assert not shown.is_sound
    report = repair(disk)
    assert report.lines() == shown.lines()
    assert "the log is sound" not in report.lines()
    stage = StorageStage(disk)
    assert stage.found.losses == []
    kept = bodies_in(stage, "q")
    assert kept == [b"q%d" % number for number in range(len(kept))]
    assert 10 < len(kept) < 20
    assert [body for _, body in read_all(stage, "s")] == [b"s%d" % number for number in range(20)]
    client = Client(stage)
    client.publish("s", b"after")
    client.publish("q", b"after")
    again = StorageStage(stage.killed())
    assert again.found.losses == []
    assert read_all(again, "s")[-1] == (20, b"after")
    again.stop()


def test_directory_of_an_older_version_starts_and_gets_a_mark() -> None:
    disk = filled("killed")
    disk.remove(SYNCED)
    stage = StorageStage(disk)
    assert len(bodies_in(stage, "q")) == 20
    assert SYNCED in stage.stop().names()


def test_cut_log_of_an_older_version_is_refused_because_of_its_streams() -> None:
    disk = filled("killed")
    disk.remove(SYNCED)
    cut_blocks(disk, 1)
    before = disk.contents()
    with pytest.raises(StorageError, match="segment holds offset 19 of stream 's' in vhost '/'"):
        StorageStage(disk)
    assert disk.contents() == before


def test_segment_of_a_stream_that_the_log_has_lost_is_refused_then_set_aside() -> None:
    """A new stream would get the same number, and overwrite the segment."""
    disk = filled("killed")
    disk.remove(SYNCED)
    segment = disk.content("stream-2-0.segment")
    log = disk.content(FIRST_LOG)
    disk.put(FIRST_LOG, log[: block_ends(log)[1]])
    with pytest.raises(StorageError, match="belongs to a stream that is missing in the log"):
        StorageStage(disk)
    report = repair(disk)
    assert any("stream-2-0.segment.unexplained-0" in line for line in report.lines())
    assert disk.content("stream-2-0.segment.unexplained-0") == segment
    stage = StorageStage(disk)
    client = Client(stage)
    client.declare("new", **STREAM)
    client.publish("new", b"m")
    assert read_all(stage, "new") == [(0, b"m")]
    assert stage.stop().content("stream-2-0.segment.unexplained-0") == segment


def test_segment_that_belongs_to_no_stream_is_set_aside_and_told() -> None:
    disk = filled("stopped")
    segment = disk.content("stream-2-0.segment")
    disk.put("stream-1-7.segment", segment)  # number 1 is a queue
    stage = StorageStage(disk)
    (loss,) = stage.found.losses
    assert "stream-1-7.segment belongs to no stream that the log knows" in loss
    disk = stage.stop()
    assert disk.content("stream-1-7.segment.unexplained-0") == segment
    assert StorageStage(disk).found.losses == []


def test_power_loss_without_syncs_is_reported_and_the_node_starts() -> None:
    disk = filled("killed")
    cut_blocks(disk, 15)
    stage = StorageStage(disk, durability=OS)
    assert any("later blocks are missing" in loss for loss in stage.found.losses)
    assert len(bodies_in(stage, "q")) < 20
    assert len(read_all(stage, "s")) == 20
    again = StorageStage(stage.killed())
    assert again.found.losses == []
    again.stop()


def test_mark_that_is_damaged_does_not_stop_the_start(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled("killed")
    disk.flip(SYNCED, 400)
    assert len(bodies_in(StorageStage(disk), "q")) == 20
    assert "the file 'synced' is damaged" in caplog.text


def test_empty_mark_of_a_node_that_ended_at_once_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FakeDisk()
    stage = StorageStage(disk)
    stage.abandon()
    survivor = disk.killed()
    assert survivor.content(SYNCED) == b""
    StorageStage(survivor).stop()
    assert caplog.text == ""


@pytest.mark.parametrize("seed_of_loss", range(12))
def test_mark_of_a_clean_stop_survives_a_power_loss(seed_of_loss: int) -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    for number in range(20):
        client.publish("q", b"q%d" % number)
    stage.stop()
    disk = stage.disk.crash(Random(seed_of_loss))
    cut_blocks(disk, 1)
    with pytest.raises(StorageError, match="later blocks are missing"):
        StorageStage(disk)


def test_mark_never_names_a_block_that_a_power_loss_can_take(seed: int) -> None:
    rng = Random(seed)
    print(f"seed {seed}")
    stage = StorageStage(FakeDisk(), file_bytes=FILE_BYTES)
    client = Client(stage)
    client.declare("q")
    for number in range(30):
        client.publish("q", b"%d" % number * 10)
        client.get("q", no_ack=number % 3 == 0)
    stage.sync_all()
    stage.abandon()
    for moment in range(stage.disk.moment + 1):
        again = StorageStage(stage.disk.crash(rng, moment))
        assert again.found.losses == []
        again.abandon()


def test_removed_checkpoint_and_log_are_noticed() -> None:
    """Without its log files the directory looks new, and its streams would be overwritten."""
    disk = filled("stopped")
    for name in disk.names():
        if name.endswith((".log", ".checkpoint")):
            disk.remove(name)
    with pytest.raises(StorageError, match="later blocks are missing"):
        StorageStage(disk)


@pytest.mark.parametrize("missing", [".log", ".checkpoint"])
def test_repair_goes_on_without_a_newest_log_or_a_checkpoint(missing: str) -> None:
    case = scenario("stopped")
    disk = case.disk.copy()
    name = max(name for name in disk.names() if name.endswith(missing))
    disk.remove(name)
    if missing == ".checkpoint":
        disk.remove(FIRST_LOG)
        disk.remove(FIRST_LOG.replace(".log", ".index"))
    with pytest.raises(StorageError, match=r"missing.*`leveret ctl repair`"):
        StorageStage(disk)
    report = repair(disk)
    assert not report.is_sound
    stage = StorageStage(disk)
    assert stage.found.losses == []
    held = [
        body
        for queue in stage.broker.vhost("/").queues
        for body in bodies_in(stage, queue)
        if queue != "s"
    ]
    assert len(held) > 5
    stage.stop()
