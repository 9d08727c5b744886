"""A fault while the messages of one queue are restored stops neither the start nor other queues.

The messages of the queue are set aside: they stay in the log, and the next start brings them back.
"""

import sys
from types import CodeType, FrameType
from typing import Any

import pytest

from leveret.engine.insight.explain_queue import QUARANTINED, explain_queue
from leveret.storage.queue_recovery import QueueRestoration
from leveret.storage.repair import repair
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

pytestmark = pytest.mark.interpreted_only("compiled functions cannot be made to fail")

QUEUES: dict[str, dict[str, object]] = {
    "plain": {},
    "priority": {"x-max-priority": 3},
    "quorum": {"x-queue-type": "quorum"},
    "good": {},
}
FILE_BYTES = 4096  # the messages of each queue are in several files


class FaultWhileRestoring:
    """Lets a function fail that is called while one queue is restored."""

    def __init__(self, queue: str, code: CodeType | None) -> None:
        self.seen: set[CodeType] = set()
        self._queue = queue
        self._code = code
        self._is_inside = False

    def on_event(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code is QueueRestoration.__init__.__code__:
            self._is_inside = frame.f_locals["queue"].name == self._queue
        # The generators of recovery.py lead from one queue to the next: they are the start itself.
        is_ours = "/leveret/" in code.co_filename and "/recovery.py" not in code.co_filename
        if event == "call" and self._is_inside and is_ours:
            self.seen.add(code)
            if code is self._code:
                self._is_inside = False
                raise MemoryError("planted")
        return None

    def start(self, disk: FakeDisk, now_ms: int) -> StorageStage:
        sys.settrace(self.on_event)
        try:
            return StorageStage(disk, now_ms=now_ms, file_bytes=FILE_BYTES)
        finally:
            sys.settrace(None)


def filled() -> StorageStage:
    """Return a node with messages in every queue, some of them settled or returned."""
    stage = StorageStage(FakeDisk(), file_bytes=FILE_BYTES)
    client = Client(stage)
    for name, arguments in QUEUES.items():
        client.declare(name, **arguments)
    for number in range(40):
        for name in QUEUES:
            client.publish(name, b"%s %d" % (name.encode(), number))
    for name in QUEUES:
        client.get(name, no_ack=True)
    stage.sync_all()
    return stage


def steps_of(queue: str) -> list[CodeType]:
    """Return the functions that restore a queue."""
    stage = filled()
    fault = FaultWhileRestoring(queue, None)
    fault.start(stage.killed(), stage.now_ms)
    # The first function of the next step is called when the queue is restored.
    return sorted(fault.seen, key=lambda code: (code.co_filename, code.co_firstlineno))


@pytest.mark.parametrize("queue", ["plain", "priority", "quorum"])
def test_queue_that_cannot_be_restored_keeps_its_messages_in_the_log(queue: str) -> None:
    stage = filled()
    wanted = {name: bodies_in(stage, name) for name in QUEUES}
    steps = [code for code in steps_of(queue) if "queue_recovery" in code.co_filename]
    assert len(steps) > 4
    for code in steps:
        broken = FaultWhileRestoring(queue, code).start(stage.killed(), stage.now_ms)
        found = broken.broker.vhost("/").queues[queue]
        assert found.damaged == len(wanted[queue]), code.co_qualname
        assert "restoring its messages failed: MemoryError: planted" in found.damage[0]
        assert bodies_in(broken, "good") == wanted["good"]
        client = Client(broken)
        client.publish(queue, b"new")
        client.publish("good", b"new")
        for _ in range(30):  # files without live messages are removed meanwhile
            client.publish("good", b"filler")
            client.get("good", no_ack=True)
        broken.sync_all()
        stage = StorageStage(broken.killed(), now_ms=stage.now_ms, file_bytes=FILE_BYTES)
        assert stage.broker.vhost("/").queues[queue].damaged == 0
        wanted[queue].append(b"new")
        assert bodies_in(stage, queue) == wanted[queue], code.co_qualname
        wanted["good"] = bodies_in(stage, "good")


def test_explain_and_repair_tell_of_a_queue_that_cannot_be_restored() -> None:
    stage = filled()
    disk = stage.killed()
    fault = FaultWhileRestoring("plain", QueueRestoration.__init__.__code__)
    sys.settrace(fault.on_event)
    try:
        report = repair(disk, dry_run=True)
    finally:
        sys.settrace(None)
    text = "queue 'plain' in vhost '/': restoring its messages failed: MemoryError: planted"
    assert f"a start reports: {text}; a repair keeps these messages" in report.lines()
    assert report.is_sound and not report.losses
    broken = FaultWhileRestoring("plain", QueueRestoration.__init__.__code__).start(
        disk, stage.now_ms
    )
    found = broken.broker.vhost("/").queues["plain"]
    (reason,) = [one for one in explain_queue(found, []).reasons if one.code == QUARANTINED]
    assert reason.text == "Set aside as unreadable: 39 messages. See the damage."
