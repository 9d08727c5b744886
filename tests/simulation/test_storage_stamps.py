"""Every block of the log says when it was made, and directories without such stamps still start."""

from leveret.journal.records import STAMP_BYTES
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, block_end, encode_block_head
from leveret.storage.dump import dump
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

FIRST_LOG = "0000000000000001.log"
HOUR_MS = 3_600_000


def _times(disk: FakeDisk) -> list[int]:
    """Return the times in the stamps of all log files, in order."""
    logs = [name for name in disk.names() if name.endswith(".log")]
    entries = [entry for name in logs for entry in dump(disk.content(name), name)]
    times = [entry.fields["time_ms"] for entry in entries if entry.kind == "stamp"]
    return [time for time in times if isinstance(time, int)]


def test_first_record_of_every_block_is_its_stamp() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=2000)
    client = Client(stage)
    client.declare("q")
    for number in range(20):
        stage.now_ms += 1
        client.publish("q", b"%d" % number * 100)
    logs = [name for name in stage.disk.names() if name.endswith(".log")]
    assert len(logs) > 1
    for name in logs:
        kinds = [entry.kind for entry in dump(stage.disk.content(name), name)]
        after = [kinds[at + 1] for at, kind in enumerate(kinds) if kind == "block"]
        assert set(after) <= {"stamp"}
    assert _times(stage.disk)[-1] == stage.now_ms


def test_times_of_blocks_never_go_back_over_a_restart() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    client.publish("q", b"before")
    start_ms = stage.now_ms
    again = StorageStage(stage.killed(), now_ms=start_ms - HOUR_MS)
    Client(again).publish("q", b"after")
    times = _times(again.disk)
    assert times == sorted(times)
    assert times[-1] == start_ms
    assert bodies_in(again, "q") == [b"before", b"after"]


def _without_stamps(log: bytes) -> bytes:
    """Return a log file as a version without stamps wrote it."""
    made = log[:HEAD_BYTES]
    at = HEAD_BYTES
    while at < len(log):
        number = int.from_bytes(log[at + 8 : at + BLOCK_HEAD_BYTES], "big")
        end = block_end(log, at, number)
        records = log[at + BLOCK_HEAD_BYTES + STAMP_BYTES : end]
        made += encode_block_head([records], number) + records
        at = end
    return made


def test_directory_of_a_version_without_stamps_starts() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    bodies = [b"%d" % number for number in range(5)]
    for body in bodies:
        client.publish("q", body)
    old = FakeDisk()
    old.put(FIRST_LOG, _without_stamps(stage.killed().content(FIRST_LOG)))
    again = StorageStage(old)
    assert again.found.damage == []
    Client(again).publish("q", b"new")
    assert bodies_in(StorageStage(again.killed()), "q") == [*bodies, b"new"]
