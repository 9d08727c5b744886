"""A fault while one stream is restored stops neither the start nor other streams.

The messages of the stream are set aside in files that keep every one of them.
"""

import sys
from types import CodeType, FrameType
from typing import Any

import pytest

from leveret.storage.dump import dump
from leveret.storage.repair import repair
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_model import read_all
from tests.simulation.storage_stage import Client, StorageStage

pytestmark = pytest.mark.interpreted_only("compiled functions cannot be made to fail")

SMALL: dict[str, object] = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 600}
FILE_BYTES = 4096
COUNT = 60


class FaultWhileRestoring:
    """Lets a function fail that is called while one stream is restored."""

    def __init__(self, code: CodeType | None) -> None:
        self.seen: set[CodeType] = set()
        self._code = code

    def on_event(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if event == "call" and "/storage/" in code.co_filename and _restores_bad(frame):
            self.seen.add(code)
            if code is self._code:
                self._code = None
                raise MemoryError("planted")
        return None

    def run(self, what: Any, *arguments: Any, **options: Any) -> Any:
        sys.settrace(self.on_event)
        try:
            return what(*arguments, **options)
        finally:
            sys.settrace(None)

    def start(self, disk: FakeDisk) -> StorageStage:
        stage: StorageStage = self.run(StorageStage, disk, file_bytes=FILE_BYTES)
        return stage


def _restores_bad(frame: FrameType | None) -> bool:
    """Return True if a function works on the stream "bad" alone."""
    while frame is not None and "/storage/" in frame.f_code.co_filename:
        if frame.f_code.co_name in ("_restore", "_append"):
            return bool(frame.f_locals["stream"].name == "bad")
        if frame.f_code.co_name == "find_unexplained":
            return bool(frame.f_locals["stream"] == 1)
        frame = frame.f_back
    return False


def body(number: int) -> bytes:
    return b"%04d" % number * 15


def filled() -> FakeDisk:
    """Return the disk of a killed node with two streams, in segments and in the log."""
    stage = StorageStage(FakeDisk(), file_bytes=FILE_BYTES)
    client = Client(stage)
    for name in ("bad", "good"):
        client.declare(name, **SMALL)
    for number in range(COUNT):
        for name in ("bad", "good"):
            client.publish(name, body(number))
    stage.sync_all()
    return stage.killed()


def kept_offsets(disk: FakeDisk) -> set[int]:
    """Return the offsets in the files that were set aside."""
    found: set[int] = set()
    for name in disk.names():
        if ".unexplained-" in name:
            for entry in dump(disk.content(name), name):
                if entry.kind == "chunk":
                    first, count = entry.fields["first_offset"], entry.fields["count"]
                    assert isinstance(first, int) and isinstance(count, int)
                    found.update(range(first, first + count))
    return found


def steps() -> list[CodeType]:
    fault = FaultWhileRestoring(None)
    fault.start(filled())
    return sorted(fault.seen, key=lambda code: code.co_firstlineno)


def test_stream_that_cannot_be_restored_is_set_aside_and_goes_on() -> None:
    found = steps()
    assert len(found) > 3
    for code in found:
        stage = FaultWhileRestoring(code).start(filled())
        stream = stage.broker.vhost("/").queues["bad"]
        assert "restoring it failed: MemoryError: planted" in stream.damage[0], code.co_name
        assert kept_offsets(stage.disk) == set(range(COUNT)), code.co_name
        wanted = [(number, body(number)) for number in range(COUNT)]
        assert read_all(stage, "good") == wanted
        client = Client(stage)
        client.publish("bad", b"new")
        stage.sync_all()
        assert read_all(stage, "bad") == [(COUNT, b"new")]
        again = StorageStage(stage.killed(), file_bytes=FILE_BYTES)
        assert read_all(again, "bad") == [(COUNT, b"new")]
        assert read_all(again, "good") == wanted
        assert kept_offsets(again.disk) == set(range(COUNT))
        again.abandon()


def test_repair_tells_of_a_stream_that_cannot_be_restored() -> None:
    disk = filled()
    code = next(code for code in steps() if code.co_name == "_restore")
    report = FaultWhileRestoring(code).run(repair, disk, dry_run=True)
    text = "stream 'bad' in vhost '/': restoring it failed: MemoryError: planted"
    assert any(line.startswith(text) for line in report.lines())
