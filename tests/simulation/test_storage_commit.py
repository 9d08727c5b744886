"""A leader's log: nothing that depends on a block happens before the block is committed."""

import errno

import pytest

from leveret.journal.records import MEMBERS_BLOCK, NORMAL_BLOCK, ROLL_BLOCK
from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.dump import Entry, dump
from leveret.storage.file_names import log_name, numbers
from leveret.testing.disk import FakeDisk
from tests.protocol.stage import method, name_of, publish
from tests.simulation.replicated_stage import (
    MEMBERS,
    InlineDisk,
    ReplicatedStage,
    blocks_of,
    cut,
)
from tests.simulation.storage_stage import PERSISTENT, Client, StorageStage, bodies_in

FILE_BYTES = 4000


class _Leader:
    """A leader with a client. Everything before the test is committed."""

    def __init__(self, disk: InlineDisk | None = None, *, bytes_max: int = 1 << 20) -> None:
        self.disk = disk or InlineDisk()
        self.stage = ReplicatedStage(self.disk, file_bytes=FILE_BYTES, bytes_max=bytes_max)
        self.client = Client(self.stage)
        self.client.declare("q")
        self.client.declare("s", **{"x-queue-type": "stream"})
        self.stage.commit_all()
        self.stage.is_committing = False
        self.log = self.stage.store.log

    def commit(self, number: int = 0) -> None:
        """Commit blocks up to a number, or all of them."""
        self.stage.commit(number or self.stage.followers.synced)
        self.client.read()

    def files(self, ending: str) -> list[int]:
        return numbers(self.disk.names(), ending)

    def shown(self) -> list[Entry]:
        """Return all blocks and records of the log."""
        names = [log_name(number) for number in self.files(".log")]
        return [entry for name in names for entry in dump(self.disk.content(name), name)]

    def fill(self, count: int = 10) -> list[bytes]:
        """Publish enough for several files, and return the bodies."""
        bodies = [b"%d" % number + bytes(800) for number in range(count)]
        for body in bodies:
            self.client.publish("q", body)
        return bodies


def test_confirm_waits_for_the_commit_and_later_blocks_are_written_meanwhile() -> None:
    leader = _Leader()
    first = [leader.client.publish("q", b"one"), leader.client.publish("q", b"two")]
    blocks = leader.stage.followers.ready()
    assert len(blocks) == 2
    assert leader.client.confirmed == {}
    leader.commit(blocks[0])
    assert leader.client.confirmed == {first[0]: True}
    leader.commit(blocks[1])
    assert leader.client.confirmed == {first[0]: True, first[1]: True}


def test_confirm_does_not_wait_for_later_blocks_that_other_output_waits_for() -> None:
    leader = _Leader()
    peer = leader.stage.opened()
    peer.open_channel(1)
    peer.feed(method(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True))
    assert [name_of(event) for event in peer.take()] == ["basic.consume-ok"]
    one = leader.client.publish("q", b"one")
    peer.feed(method(1, "confirm.select") + publish(1, "q", b"two", PERSISTENT))
    first, second = leader.stage.followers.ready()
    leader.commit(first)
    assert leader.client.confirmed == {one: True}
    names = [name_of(event) for event in peer.take()]
    assert names == ["basic.deliver"]
    leader.commit(second)
    names = [name_of(event) for event in peer.take()]
    assert names == ["confirm.select-ok", "basic.deliver", "basic.ack"]


def test_no_answer_tells_of_a_message_that_is_not_committed() -> None:
    leader = _Leader()
    other = leader.stage.opened()
    other.open_channel(1)
    leader.client.peer.feed(publish(2, "q", b"unconfirmed", PERSISTENT))
    other.feed(method(1, "queue.declare", queue="q", passive=True))
    assert other.take() == []
    other.feed(method(1, "basic.get", queue="q", no_ack=True))
    assert other.take() == []
    leader.stage.sync()
    leader.commit()
    names = [name_of(event) for event in other.take()]
    assert names == ["queue.declare-ok", "basic.get-ok"]


def test_blocks_of_acks_hold_no_output_back() -> None:
    leader = _Leader()
    leader.client.publish("q", b"one")
    leader.commit()
    leader.stage.is_committing = True
    assert leader.client.get("q", no_ack=True) is not None
    leader.stage.is_committing = False
    leader.stage.run_timers()  # the ack is written
    assert leader.stage.followers.ready()
    assert leader.stage.store.block_to_await() == 0
    assert leader.client.get("q") is None  # answered at once


def test_a_delivery_waits_for_its_commit_while_another_node_may_lead() -> None:
    leader = _Leader()
    for body in (b"one", b"two"):
        leader.client.publish("q", body)
    leader.commit()
    peer = leader.stage.opened()
    peer.open_channel(1)
    leader.stage.followers.has_lease = False
    peer.feed(method(1, "basic.get", queue="q", no_ack=True))
    assert peer.take() == []
    leader.stage.sync()
    leader.commit()
    assert [name_of(event) for event in peer.take()] == ["basic.get-ok"]
    leader.stage.followers.has_lease = True
    peer.feed(method(1, "basic.get", queue="q", no_ack=True))
    assert [name_of(event) for event in peer.take()] == ["basic.get-ok"]


def test_a_delivery_that_no_block_records_waits_while_another_node_may_lead() -> None:
    """Messages may be delivered in another order than they came: the mark is that of the newest."""
    leader = _Leader()
    leader.stage.is_committing = True
    leader.client.declare("p", **{"x-max-priority": 9})
    for priority in (0, 9):
        leader.client.publish("p", b"%d" % priority, {**PERSISTENT, "priority": priority})
    leader.stage.commit_all()
    peer = leader.stage.opened()
    peer.open_channel(1)
    peer.feed(method(1, "basic.get", queue="p"))
    assert [name_of(event) for event in peer.take()] == ["basic.get-ok"]
    leader.stage.run_timers()
    leader.stage.commit_all()
    leader.stage.is_committing = False
    leader.stage.followers.has_lease = False
    peer.feed(method(1, "basic.get", queue="p"))
    assert peer.take() == []
    leader.stage.sync()
    leader.commit()
    assert [name_of(event) for event in peer.take()] == ["basic.get-ok"]


def test_stream_shows_a_message_after_its_commit() -> None:
    leader = _Leader()
    before = leader.disk.contents()
    leader.client.publish("s", b"one")
    stream = leader.stage.broker.vhost("/").queues["s"]
    segments = [name for name in leader.disk.names() if name.endswith(".segment")]
    assert stream.message_count() == 0
    assert all(leader.disk.content(name) == before.get(name, b"") for name in segments)
    leader.commit()
    assert stream.message_count() == 1


def test_log_files_hold_the_bytes_that_other_nodes_were_given() -> None:
    leader = _Leader()
    leader.fill()
    given = {block.number: block for block in leader.stage.followers.given}
    found = blocks_of(leader.disk)
    assert [number for *_, number in found] == sorted(given)
    for name, start, end, number in found:
        assert leader.disk.content(name)[start:end] == given[number].data
        assert (given[number].kind == ROLL_BLOCK) == (start == HEAD_BYTES)
    assert len({name for name, *_ in found}) > 2


def test_new_file_is_settled_after_the_commit_of_its_first_block() -> None:
    leader = _Leader()
    settled = leader.files(".settled")
    bodies = leader.fill()
    assert len(leader.log.files()) > 2
    assert leader.files(".checkpoint") == []
    assert leader.files(".settled") == settled
    # A node that ends here has written everything and recovers from the older ROLL block.
    assert bodies_in(StorageStage(leader.disk.killed()), "q") == bodies
    leader.commit()
    assert leader.files(".settled") == [leader.log.files()[-1]]
    assert bodies_in(StorageStage(leader.disk.killed()), "q") == bodies


def test_every_tail_that_is_not_committed_can_be_cut_off() -> None:
    leader = _Leader()
    begun = leader.stage.followers.committed
    bodies = leader.fill()
    kinds = {block.number: block.kind for block in leader.stage.followers.given}
    for last in range(begun, leader.stage.followers.synced + 1):
        disk = leader.disk.copy()
        cut(disk, last)
        found = bodies_in(StorageStage(disk), "q")
        count = sum(kinds[number] == NORMAL_BLOCK for number in range(begun + 1, last + 1))
        assert found == bodies[:count]


def test_state_larger_than_a_file_does_not_begin_a_file_with_each_block() -> None:
    """Each message would cost the whole state again, on the disk of every node."""
    leader = _Leader()
    leader.stage.is_committing = True
    for number in range(40):
        leader.client.declare(f"{number:0200d}")
    leader.stage.is_committing = False
    leader.client.publish("q", bytes(FILE_BYTES))  # a file begins with all these queues
    leader.commit()
    given = leader.stage.followers.given
    assert len(given[-1].data) > 2 * FILE_BYTES
    assert given[-1].kind == ROLL_BLOCK
    count = len(given)
    leader.fill(4)
    assert [block.kind for block in given[count:]] == [NORMAL_BLOCK] * 4
    leader.fill(1)
    assert [block.kind for block in given[count + 4 :]] == [NORMAL_BLOCK, ROLL_BLOCK]


def test_caller_of_roll_is_told_after_the_commit() -> None:
    leader = _Leader()
    told: list[int] = []
    leader.log.roll(told.append)
    leader.stage.sync()
    assert told == []
    assert leader.log.files()[-1] == 2
    leader.commit()
    assert told == [2]


def test_file_is_removed_after_the_commit_of_the_acks() -> None:
    leader = _Leader()
    leader.fill()
    leader.commit()
    files = leader.log.files()
    leader.stage.is_committing = True
    leader.client.drain("q")
    leader.stage.is_committing = False
    leader.stage.run_timers()  # acks wait for a timer
    assert set(files) <= set(leader.log.files())
    assert set(files) <= set(leader.files(".log"))
    leader.commit()
    assert files[0] not in leader.log.files()
    assert files[0] not in leader.files(".log")


def test_file_that_was_emptied_by_a_block_on_its_way_stays() -> None:
    leader = _Leader()
    leader.fill()
    leader.commit()
    files = leader.log.files()
    leader.stage.is_committing = True
    leader.client.drain("q")
    leader.stage.is_committing = False
    leader.log.hold_files()  # a backup ends after the block of the acks was taken
    leader.stage.run_timers()
    leader.log.release_files()
    leader.stage.sync()
    assert set(files) <= set(leader.files(".log"))
    leader.commit()
    leader.stage.sync()
    assert files[0] not in leader.files(".log")


def test_full_disk_removes_no_file_whose_acks_are_not_committed() -> None:
    leader = _Leader()
    bodies = leader.fill()
    leader.commit()
    files = leader.files(".log")
    committed = leader.stage.followers.committed
    leader.disk.fail_write(1, errno.ENOSPC)
    leader.client.publish("q", b"not written")
    for _ in bodies:
        leader.client.peer.feed(method(3, "basic.get", queue="q", no_ack=True))
    leader.stage.run_timers()  # the block is written now, and the acks after it
    assert leader.stage.followers.synced > committed
    assert set(files) <= set(leader.files(".log"))
    disk = leader.disk.copy()
    cut(disk, committed)
    assert bodies_in(StorageStage(disk), "q") == bodies


def test_later_blocks_wait_for_a_full_disk_and_then_go_on() -> None:
    leader = _Leader()
    leader.client.publish("s", b"one")
    leader.client.publish("q", b"two")
    leader.disk.fail_write(1, errno.ENOSPC)  # the chunk, when its block is committed
    leader.commit()
    assert True not in leader.client.confirmed.values()
    third = leader.client.publish("q", b"three")
    leader.stage.run_timers()
    leader.commit()
    assert leader.client.confirmed[third]
    assert leader.stage.broker.vhost("/").queues["s"].message_count() == 1
    assert bodies_in(StorageStage(leader.disk.killed()), "q") == [b"two", b"three"]


def test_no_block_is_taken_while_too_much_is_not_committed() -> None:
    leader = _Leader(bytes_max=2000)
    leader.fill(6)
    given = leader.stage.followers.given
    waiting = sum(len(b.data) for b in given if b.number > leader.stage.followers.committed)
    assert waiting < 8000  # a ROLL block may come on top
    assert leader.stage.store.journal.waiting_bytes() > 1000
    while leader.stage.followers.ready():
        leader.commit()
    assert leader.stage.store.journal.waiting_bytes() == 0
    assert all(leader.client.confirmed.values())
    assert len(leader.client.confirmed) == 6


def test_members_get_a_block_of_their_own_behind_everything_before() -> None:
    leader = _Leader()
    log = leader.stage.store.replicated
    assert log is not None
    leader.stage.holds = True
    leader.client.publish("q", b"one")  # on its way
    leader.client.publish("q", b"two")  # in the journal
    number = log.write_members(b"new members")
    assert [block.kind for block in leader.stage.followers.given[-2:]] == [
        NORMAL_BLOCK,
        MEMBERS_BLOCK,
    ]
    assert leader.stage.followers.given[-1].number == number
    assert leader.client.peer.stage.broker.vhost("/").queues["q"].message_count() == 2
    leader.stage.sync()
    leader.client.publish("q", b"three")
    leader.stage.sync()
    leader.commit()
    shown = [
        e for n in leader.files(".log") for e in dump(leader.disk.content(log_name(n)), ".log")
    ]
    assert [e.fields for e in shown if e.kind == "members"] == [{"members_bytes": 11}]
    again = StorageStage(leader.disk.killed())
    assert again.found.damage == []
    assert bodies_in(again, "q") == [b"one", b"two", b"three"]


def test_leader_that_ends_writes_what_it_gave_away_and_no_more() -> None:
    leader = _Leader()
    leader.stage.holds = True
    leader.client.publish("q", b"given")
    leader.client.publish("q", b"in the journal")
    last = leader.stage.followers.given[-1].number
    leader.stage.store.abandon()
    assert leader.stage.followers.given[-1].number == last
    assert blocks_of(leader.disk)[-1][3] == last
    shown = [
        e for n in leader.files(".log") for e in dump(leader.disk.content(log_name(n)), ".log")
    ]
    assert "end" not in {entry.kind for entry in shown}
    assert bodies_in(StorageStage(leader.disk.copy()), "q") == [b"given"]


def test_leader_that_ends_on_a_disk_that_was_full_writes_what_it_gave_away() -> None:
    leader = _Leader()
    leader.disk.fail_write(1, errno.ENOSPC)
    leader.client.publish("q", b"one")
    last = leader.stage.followers.given[-1].number
    assert leader.stage.followers.synced < last
    leader.stage.store.abandon()
    assert blocks_of(leader.disk)[-1][3] == last
    assert leader.files(".settled") == [1]


def test_directory_of_a_node_alone_is_led_and_back() -> None:
    alone = StorageStage(FakeDisk(), file_bytes=FILE_BYTES)
    client = Client(alone)
    client.declare("q")
    bodies = [b"%d" % number + bytes(800) for number in range(10)]
    for body in bodies:
        client.publish("q", body)
    disk = InlineDisk()
    for name, content in alone.stop().contents().items():
        disk.put(name, content)
    checkpoints = numbers(disk.names(), ".checkpoint")
    stage = ReplicatedStage(disk, file_bytes=FILE_BYTES, is_begun=False)
    stage.sync()
    assert numbers(disk.names(), ".checkpoint") == checkpoints  # the ROLL block may be cut off
    before = disk.copy()
    cut(before, stage.followers.given[0].number - 1)
    assert bodies_in(StorageStage(before), "q") == bodies
    stage.commit_all()
    assert numbers(disk.names(), ".checkpoint") == []
    Client(stage).publish("q", b"led")
    stage.commit_all()
    stage.store.close()
    again = StorageStage(disk.copy(), file_bytes=FILE_BYTES)
    assert again.store.log.term == 1
    Client(again).publish("q", b"alone")
    assert numbers(again.disk.names(), ".settled") == []
    assert bodies_in(StorageStage(again.stop()), "q") == [*bodies, b"led", b"alone"]


@pytest.mark.parametrize("kept", [0, 5, HEAD_BYTES, HEAD_BYTES + 7, HEAD_BYTES + 100])
def test_file_whose_first_block_is_torn_goes(kept: int) -> None:
    leader = _Leader()
    bodies = leader.fill()
    newest = leader.files(".log")[-1]
    disk = leader.disk.copy()
    rolls = [block for block in leader.stage.followers.given if block.kind == ROLL_BLOCK]
    cut(disk, rolls[-1].number)
    disk.put(log_name(newest), disk.content(log_name(newest))[:kept])
    again = StorageStage(disk, file_bytes=FILE_BYTES)
    assert again.found.next_file == newest  # its number is used again
    assert again.found.last_block == rolls[-1].number - 1
    assert again.found.cut_bytes == (kept if kept < HEAD_BYTES else kept - HEAD_BYTES)
    count = sum(
        block.kind == NORMAL_BLOCK
        for block in leader.stage.followers.given
        if leader.stage.followers.committed < block.number < rolls[-1].number
    )
    assert bodies_in(again, "q") == bodies[:count]


def test_roll_block_names_its_file_terms_and_members() -> None:
    leader = _Leader()
    leader.fill()
    for number in leader.files(".log"):
        shown = list(dump(leader.disk.content(log_name(number)), log_name(number)))
        (roll,) = [entry.fields for entry in shown if entry.kind == "roll"]
        assert roll == {"file": number, "terms": "1@1", "members_bytes": len(MEMBERS)}
