"""Confirmed messages were synced before, on every path; and durability `os` syncs nothing.

The proof is the disk after a power loss at the moment of the confirm, with all unsynced data lost:
a broker that starts from it has the message in every queue.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from leveret.storage.store import OS
from leveret.testing.disk import SYNC, SYNC_FOLDER, FakeDisk
from tests.protocol.stage import method, publish
from tests.simulation.storage_stage import PERSISTENT, Client, StorageStage, bodies_in

QUEUES = ("a", "b", "c")
SMALL_FILE = 600


class Worst(Random):
    """Always chooses the first option, so that all unsynced data is lost."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


def safe_bodies(stage: StorageStage) -> dict[str, list[bytes]]:
    """Return the content of each queue if power were lost now."""
    again = StorageStage(stage.disk.crash(Worst()))
    known = again.broker.vhost("/").queues
    found = {name: bodies_in(again, name) if name in known else [] for name in QUEUES}
    again.abandon()
    return found


class Publisher:
    """Publishes, and examines the disk whenever something is confirmed."""

    def __init__(self, disk: FakeDisk) -> None:
        self.stage = StorageStage(disk, file_bytes=SMALL_FILE)
        self.client = Client(self.stage)
        self.client.call(2, "exchange.declare", exchange="fan", type="fanout", durable=True)
        for name in QUEUES:
            self.client.declare(name)
            self.client.call(2, "queue.bind", queue=name, exchange="fan")
        self.client.peer.open_channel(4)
        self.client.call(4, "tx.select")
        self.stage.holds = True
        self.sent: dict[int, tuple[bytes, tuple[str, ...]]] = {}  # by publish
        self.committing: list[list[tuple[bytes, tuple[str, ...]]]] = []
        self.seen = 0

    def publish(self, body: bytes, *queues: str) -> None:
        """Publish to one queue by name, or to all queues."""
        if len(queues) == 1:
            number = self.client.publish(queues[0], body)
        else:
            number = self.client.publish("", body, exchange="fan")
        self.sent[number] = (body, queues)
        self.look()

    def commit(self, *bodies: bytes) -> None:
        frames = [publish(4, "a", body, PERSISTENT) for body in bodies]
        self.committing.append([(body, ("a",)) for body in bodies])
        self.client.peer.feed(b"".join(frames) + method(4, "tx.commit"))
        self.look()

    def hear(self) -> bool:
        heard = self.stage.take_report()
        self.look()
        return heard

    def look(self) -> None:
        """Check that everything confirmed by now is safe."""
        self.client.read()
        told = [self.sent[number] for number in self.client.confirmed]
        for _ in self.client.others:
            told += self.committing.pop(0)
        self.client.others = []
        if not told:
            return
        self.seen += 1
        safe = safe_bodies(self.stage)
        for body, queues in told:
            for name in queues:
                assert body in safe[name], (body, name)


def plain(publisher: Publisher, number: int) -> None:
    publisher.publish(b"m%d" % number, "a")


def to_all(publisher: Publisher, number: int) -> None:
    publisher.publish(b"m%d" % number, *QUEUES)


def committed(publisher: Publisher, number: int) -> None:
    publisher.commit(b"x%d" % number, b"y%d" % number)


def mixed(publisher: Publisher, number: int) -> None:
    (plain, to_all, committed)[number % 3](publisher, number)


Way = Callable[[Publisher, int], None]


def run(disk: FakeDisk, way: Way) -> Publisher:
    publisher = Publisher(disk)
    for number in range(24):
        way(publisher, number)
        if number % 4 == 3:
            publisher.hear()
    while publisher.hear():
        pass
    publisher.stage.abandon()
    return publisher


@pytest.mark.parametrize("way", [plain, to_all, committed, mixed])
def test_nothing_is_confirmed_before_its_block_is_synced(way: Way) -> None:
    publisher = run(FakeDisk(), way)
    assert publisher.seen > 3
    assert publisher.committing == []
    assert set(publisher.client.confirmed.values()) <= {True}
    assert len(publisher.client.confirmed) == len(publisher.sent)


def test_check_fails_on_a_disk_that_ignores_syncs() -> None:
    """Checks the check itself: without syncs it fails."""
    disk = FakeDisk()
    disk.lies = True
    with pytest.raises(AssertionError):
        run(disk, plain)


def test_confirm_of_a_message_for_several_queues_needs_one_sync() -> None:
    publisher = Publisher(FakeDisk())
    syncs = publisher.stage.disk.counts[SYNC]
    publisher.publish(b"m", *QUEUES)
    assert publisher.client.confirmed == {}
    publisher.hear()
    assert publisher.client.confirmed == {1: True}
    assert publisher.stage.disk.counts[SYNC] >= syncs + 1
    publisher.stage.abandon()


def test_durability_os_never_syncs_and_survives_a_kill() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=SMALL_FILE, durability=OS)
    client = Client(stage)
    client.declare("q")
    for number in range(40):
        client.publish("q", b"%d" % number * 10)
        if number == 20:
            client.drain("q")
    assert set(client.confirmed.values()) == {True}
    stage.sync_all()
    disk = stage.disk
    assert any(name.endswith(".checkpoint") for name in disk.names())
    again = StorageStage(stage.killed(), durability=OS)
    assert bodies_in(again, "q") == [b"%d" % number * 10 for number in range(21, 40)]
    again.abandon()
    for used in (disk, again.disk):
        assert used.counts[SYNC] + used.counts[SYNC_FOLDER] == 0
