"""Log files over many starts: which are kept, which are removed, and how a start reads them."""

from random import Random

import pytest

from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.compat.wire import Typed
from tests.protocol.stage import publish
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

TINY = 2048


def logs(disk: FakeDisk) -> list[str]:
    return [name for name in disk.names() if name.endswith(".log")]


def restarted(stage: StorageStage, file_bytes: int = 1 << 20) -> StorageStage:
    return StorageStage(stage.stop(), file_bytes=file_bytes, now_ms=stage.now_ms)


def test_file_between_others_may_be_gone() -> None:
    """One message stays in the first file, the second is emptied, the third is the newest."""
    stage = StorageStage(FakeDisk(), file_bytes=TINY)
    client = Client(stage)
    client.declare("old")
    client.declare("new")
    client.publish("old", b"stays")
    for number in range(60):
        client.publish("new", b"%d" % number * 20)
        client.drain("new")
    stage.sync_all()
    assert len(logs(stage.disk)) == 2
    client.publish("new", b"last")
    assert set(client.confirmed.values()) == {True}
    again = StorageStage(stage.killed())
    assert again.found.cut_bytes == 0
    assert bodies_in(again, "old") == [b"stays"]
    assert bodies_in(again, "new") == [b"last"]
    again.stop()


def test_number_of_a_deleted_queue_is_not_used_again() -> None:
    """Messages of a deleted queue must not appear in a queue that was declared later."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("kept")
    client.declare("doomed")
    client.publish("kept", b"keeps the file")
    for number in range(5):
        client.publish("doomed", b"ghost %d" % number)
    client.call(2, "queue.delete", queue="doomed")
    stage = restarted(restarted(stage))
    Client(stage).declare("fresh")
    stage = restarted(stage)
    assert bodies_in(stage, "fresh") == []
    assert bodies_in(stage, "kept") == [b"keeps the file"]
    stage.stop()


def test_message_of_an_earlier_publish_is_not_taken_for_a_copy() -> None:
    """Equal bodies and headers of one turn may be one object; their addresses are not."""
    for body in (b"", b"x"):
        stage = StorageStage(FakeDisk())
        client = Client(stage)
        for name in ("a", "b"):
            client.declare(name)
        properties: dict[str, object] = {"delivery_mode": 2}
        client.peer.feed(publish(1, "a", body, properties) + publish(1, "b", body, properties))
        stage = restarted(stage)
        client = Client(stage)
        for name in ("a", "b"):
            message = client.get(name)
            assert message is not None
            assert message.fields["routing_key"] == name
        stage.stop()


def test_auto_delete_exchange_comes_back_with_the_bindings_it_had() -> None:
    """It depended on a transient binding while its durable bindings changed."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    call = client.call
    call(2, "exchange.declare", exchange="e", type="fanout", durable=True, auto_delete=True)
    client.declare("one")
    client.declare("two")
    call(2, "queue.declare", queue="passing", exclusive=True)
    call(2, "queue.bind", queue="one", exchange="e")
    call(2, "queue.bind", queue="passing", exchange="e")
    call(2, "queue.unbind", queue="one", exchange="e")
    call(2, "queue.bind", queue="two", exchange="e")
    stage = StorageStage(stage.killed())
    client = Client(stage)
    client.publish("", b"through", exchange="e")
    assert [m.body for m in client.drain("two")] == [b"through"]
    stage.stop()


def test_many_carbon_copies_are_kept() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    keys = [f"key-{number}" for number in range(300)]
    client.publish("q", b"m", {"delivery_mode": 2, "headers": {"CC": keys}})
    assert client.confirmed == {1: True}
    stage = restarted(stage)
    assert bodies_in(stage, "q") == [b"m"]
    stage.stop()


def test_dead_letter_is_on_disk_before_the_file_of_its_original_goes() -> None:
    """The original's file is empty when it is dead-lettered, but the copy is not synced."""
    stage = StorageStage(FakeDisk(), file_bytes=TINY)
    stage.store.compactor.stop()  # the original stays where it is
    client = Client(stage)
    client.declare("dead")
    client.declare("q", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.declare("other")
    client.publish("q", b"precious")
    for number in range(40):
        client.publish("other", b"%d" % number * 20)
        client.drain("other")
    stage.sync_all()
    stage.holds = True
    taken = client.get("q")
    assert taken is not None
    while True:  # until the current block starts a new file
        before = stage.store.log.taken_block
        files = len([c for c in stage.disk.changes if c.kind == "create"])
        client.publish("other", b"filler" * 20)
        client.get("other", no_ack=True)
        if len([c for c in stage.disk.changes if c.kind == "create"]) > files:
            break
        stage.sync()
        assert stage.store.log.taken_block > before
    client.call(3, "basic.reject", delivery_tag=taken.fields["delivery_tag"], requeue=False)
    stage.take_report()  # the new file exists: files without messages are removed
    for moment in range(stage.disk.moment - 4, stage.disk.moment + 1):
        disk = stage.disk.killed(moment)
        again = StorageStage(disk)
        found = bodies_in(again, "q") + bodies_in(again, "dead")
        assert found == [b"precious"], f"power lost after change {moment}"
        again.abandon()
    stage.abandon()


def test_dead_letter_outlives_a_full_disk_and_a_crash() -> None:
    """A full disk gives back files without messages; the original of a dead letter counts as one
    until the dead letter is synced."""
    stage = StorageStage(FakeDisk(), file_bytes=TINY)
    stage.store.compactor.stop()  # the original stays where it is
    client = Client(stage)
    client.declare("dead")
    client.declare("q", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.declare("other")
    client.publish("q", b"precious")
    for number in range(40):
        client.publish("other", b"%d" % number * 20)
        client.drain("other")
    stage.sync_all()
    taken = client.get("q")
    assert taken is not None
    client.call(3, "basic.reject", delivery_tag=taken.fields["delivery_tag"], requeue=False)
    for _ in range(2):  # the second attempt begins with removing files
        stage.disk.fail_write()
        stage.run_timers()
    assert stage.alarms == [True]
    again = StorageStage(stage.killed())
    assert bodies_in(again, "q") + bodies_in(again, "dead") == [b"precious"]
    again.abandon()


@pytest.mark.parametrize("size", [0, 1, 10, 23])
def test_file_whose_head_was_never_written_does_no_harm(size: int) -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    client.publish("q", b"m")
    disk = stage.stop()
    disk.put("0000000000000002.log", disk.content("0000000000000001.log")[:size])
    for _ in range(3):
        stage = StorageStage(disk)
        disk = stage.killed()
    stage = StorageStage(disk)
    assert bodies_in(stage, "q") == [b"m"]
    stage.stop()


def test_head_that_is_only_zeros_in_the_newest_file_does_no_harm() -> None:
    """The size of a file may reach the disk before its bytes do."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    client.publish("q", b"m")
    disk = stage.stop()
    disk.put("0000000000000002.log", bytes(24))
    stage = StorageStage(disk)
    assert bodies_in(stage, "q") == [b"m"]
    stage.stop()


def test_power_lost_in_every_moment_of_a_start() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=TINY)
    client = Client(stage)
    client.declare("q")
    for number in range(30):
        client.publish("q", b"%d" % number * 10)
    want = [b"%d" % number * 10 for number in range(30)]
    disk = stage.killed()
    first_moment = disk.moment
    StorageStage(disk, file_bytes=TINY).abandon()
    for moment in range(first_moment, disk.moment + 1):
        for seed in range(10):
            survivor = disk.crash(Random(seed), moment)
            second = StorageStage(survivor, file_bytes=TINY)
            third = StorageStage(second.crashed(Random(seed)), file_bytes=TINY)
            assert bodies_in(third, "q") == want, (moment, seed)
            third.abandon()


def test_power_lost_in_every_moment_of_a_new_file() -> None:
    """Older files were removed long before the log begins the next one."""
    stage = StorageStage(FakeDisk(), file_bytes=TINY)
    client = Client(stage)
    client.declare("old")
    client.declare("new")
    while "0000000000000001.log" in stage.disk.names():
        client.publish("new", b"n" * 100)
        client.drain("new")
    client.publish("old", b"stays")
    first_moment = stage.disk.moment
    files = len(logs(stage.disk.copy()))
    while len(logs(stage.disk)) == files:
        client.publish("old", b"o" * 300)
    stage.abandon()
    for moment in range(first_moment, stage.disk.moment + 1):
        for seed in range(20):
            again = StorageStage(stage.disk.crash(Random(seed), moment))
            assert bodies_in(again, "old")[:1] == [b"stays"], (moment, seed)
            again.abandon()


def test_redelivered_counts_of_a_message_that_waits_are_there_after_a_start() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q", **{"x-queue-type": "quorum"})
    client.publish("q", b"m")
    for _ in range(3):
        message = client.get("q")
        assert message is not None
        tag = message.fields["delivery_tag"]
        client.call(3, "basic.reject", delivery_tag=tag, requeue=True)
    stage.sync_all()
    stage = restarted(stage)
    message = Client(stage).get("q")
    assert isinstance(message, Method)
    assert message.content is not None
    headers = message.content.properties["headers"]
    assert headers == {"x-acquired-count": Typed("l", 3), "x-delivery-count": Typed("l", 3)}
    assert message.fields["redelivered"]
    stage.stop()


def test_every_synced_block_ends_a_turn() -> None:
    """No client waits for transient messages in the log, but publishers may wait for the log."""
    turns: list[int] = []

    class CountingStage(StorageStage):
        def _on_synced(self) -> None:
            turns.append(1)
            super()._on_synced()

    stage = CountingStage(FakeDisk(), window=1)
    client = Client(stage)
    client.call(2, "queue.declare", queue="short", exclusive=True)
    turns.clear()
    blocks = stage.store.log.syncs_done
    for _ in range(5):
        client.publish("short", b"m", {"delivery_mode": 1})
    stage.sync_all()
    assert stage.store.log.syncs_done > blocks
    assert len(turns) == stage.store.log.syncs_done - blocks
    stage.stop()


def test_what_waits_in_the_log_alone_takes_little_memory() -> None:
    stage = StorageStage(FakeDisk(), window=10)
    client = Client(stage)
    client.declare("q")
    queue = stage.broker.vhost("/").queues["q"]
    for _ in range(10):
        client.publish("q", b"x" * 1000)
    in_memory = queue.memory_bytes()
    assert in_memory > 10_000
    for _ in range(200):
        client.publish("q", b"x" * 1000)
    assert queue.memory_bytes() < in_memory + 200 * 20
    client.drain("q")
    assert queue.memory_bytes() == 0
    stage.stop()
