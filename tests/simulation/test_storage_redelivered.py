"""The flag `redelivered` after a kill or a power loss at any moment of a node's life.

A message that a consumer may have seen must say so when it comes again. Deliveries do not wait for
the disk: consumers get messages while the log's thread is in the middle of a job, and only a later
block tells of these deliveries.
"""

from random import Random

import pytest

from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage, ended

FAN = "fan"
QUEUES = ("one", "two")
TINY = 1024  # bytes of a log file: a few messages
BACKLOG = 8  # messages that wait for the second life; the last of them are in the file with END
STEPS = 10
PUBLISHED_PER_STEP = 2
PREFETCH = 2  # as many are taken in a step, so that messages wait in the log
JOB_STEPS = 3  # the log's thread works on a job for so many steps

Key = tuple[str, bytes]  # queue and body


class Life:
    """One life of a node: a publisher, and a consumer for each queue that acks at once."""

    def __init__(self, disk: FakeDisk, window: int) -> None:
        self.disk = disk
        self.stage = StorageStage(disk, file_bytes=TINY, holds=True, window=window)
        self.client = Client(self.stage)
        # Each delivery, and the first moment of the disk at which it may have happened.
        self.seen: dict[Key, int] = {}
        self._job_moment = disk.moment  # when the job began that the thread may still be doing

    def define(self) -> None:
        client = self.client
        client.call(2, "exchange.declare", exchange=FAN, type="fanout", durable=True)
        for name in QUEUES:
            client.declare(name)
            client.call(2, "queue.bind", queue=name, exchange=FAN)
        self.stage.sync()

    def publish(self, body: bytes) -> None:
        self._note_idle()
        self.client.publish("", body + bytes(200), exchange=FAN)

    def consume(self) -> None:
        self.client.call(3, "basic.qos", prefetch_count=PREFETCH)
        for name in QUEUES:
            self.client.call(3, "basic.consume", queue=name, consumer_tag=name)

    def take(self) -> None:
        """Take what was delivered, and ack it."""
        self._note_idle()
        client = self.client
        client.read()
        taken = client.deliveries
        client.deliveries = []
        for message in taken:
            queue = str(message.fields["consumer_tag"])
            self.seen.setdefault((queue, message.body), self._job_moment)
            client.call(3, "basic.ack", delivery_tag=message.tag)

    def hear(self) -> None:
        """Take the report of a job. The thread begins the next one."""
        self._job_moment = self.disk.moment
        self.stage.take_report()

    def _note_idle(self) -> None:
        if not self.stage.is_writing():
            self._job_moment = self.disk.moment

    def flags(self) -> dict[Key, bool]:
        """Take all messages; return whether each of them is marked as redelivered."""
        return {
            (name, message.body): bool(message.fields["redelivered"])
            for name in QUEUES
            for message in self.client.drain(name)
        }


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_message_that_was_seen_while_the_disk_was_full_says_so(ending: str) -> None:
    """The node stops in order, and starts on a disk on which it cannot begin a log file."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    for body in (b"a", b"b", b"c"):
        client.publish("q", body)
    disk = stage.stop()
    disk.capacity_bytes = disk.used_bytes()

    stage = StorageStage(disk, holds=True)
    assert stage.alarms == [True]
    client = Client(stage)
    seen = [client.get("q"), client.get("q")]
    assert [message.fields["redelivered"] for message in seen if message] == [False, False]
    after = stage.killed() if ending == "killed" else stage.stop()

    after.capacity_bytes = None
    flags = [message.fields["redelivered"] for message in Client(StorageStage(after)).drain("q")]
    assert flags == [True, True, True]


@pytest.mark.parametrize(("ending", "window"), [("killed", 0), ("power lost", 2)])
def test_message_that_was_seen_says_so_whenever_the_node_ends(
    seed: int, ending: str, window: int
) -> None:
    print(f"seed {seed}")
    first = Life(FakeDisk(), window)
    first.define()
    for number in range(BACKLOG):
        first.publish(b"old %d" % number)
        first.stage.sync()
    disk = first.stage.stop()
    start = disk.moment

    second = Life(disk, window)
    second.consume()
    for step in range(STEPS):
        for number in range(PUBLISHED_PER_STEP):
            second.publish(b"new %d.%d" % (step, number))
        second.take()
        if step % JOB_STEPS == 0:
            second.hear()
    second.take()
    stopped = second.stage.stop()  # the consumers have not got everything yet

    faults: list[str] = []
    for moment in range(start, disk.moment + 1):
        rng = Random(f"{seed} {moment}")
        third = Life(ended(disk, rng, moment, ending), window)
        for key, is_redelivered in third.flags().items():
            if not is_redelivered and second.seen.get(key, disk.moment + 1) <= moment:
                faults.append(f"moment {moment}: {key[0]} {key[1][:8]!r}")
        third.stage.abandon()
    assert faults == []

    # After a stop in order, a message that was not delivered does not say so.
    fourth = Life(stopped, window)
    flags = list(fourth.flags().items())
    fourth.stage.abandon()
    assert flags
    assert [key for key, is_redelivered in flags if key in second.seen and not is_redelivered] == []
    assert not flags[-1][1]
