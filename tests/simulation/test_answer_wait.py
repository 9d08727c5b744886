"""A leader's log waits for what relayed publishers send after their confirms."""

from tests.protocol.stage import Peer, method, publish
from tests.simulation.replicated_stage import InlineDisk, ReplicatedStage
from tests.simulation.storage_stage import PERSISTENT

WINDOW = 64  # messages that the publisher sends before it waits for confirms
FEW = 31


class _Publisher:
    """A leader with a publisher, whose first window is committed and confirmed."""

    def __init__(self, *, is_relayed: bool = True, window: int = WINDOW) -> None:
        self.stage = ReplicatedStage(InlineDisk())
        self.peer = self.opened(is_relayed=is_relayed)
        self.peer.feed(method(2, "queue.declare", queue="q", durable=True))
        self.stage.commit_all()
        self.stage.is_committing = False
        self.send(window)
        self.commit()

    def opened(self, *, is_relayed: bool) -> Peer:
        peer = self.stage.opened()
        peer.connection.is_relayed = is_relayed
        peer.open_channel(1, 2)
        peer.feed(method(1, "confirm.select"))
        return peer

    def send(self, count: int) -> None:
        """Send messages in one piece."""
        self.peer.feed(b"".join(publish(1, "q", b"m", PERSISTENT) for _ in range(count)))

    def commit(self) -> None:
        self.stage.commit(self.stage.followers.synced)

    def blocks(self) -> int:
        """Return how many blocks were taken so far."""
        return self.stage.store.log.taken_block


def test_block_waits_until_the_pieces_of_an_answer_are_there() -> None:
    publisher = _Publisher()
    before = publisher.blocks()
    for _ in range(3):
        publisher.send(WINDOW // 4)
        assert publisher.blocks() == before
    publisher.send(WINDOW // 4)
    assert publisher.blocks() == before + 1
    publisher.commit()
    assert publisher.peer.connection.channels[1].confirmed_seq == 2 * WINDOW


def test_answers_to_two_commits_go_to_one_block() -> None:
    publisher = _Publisher(window=1)
    publisher.send(WINDOW)
    publisher.send(WINDOW)  # in a block of its own
    first = publisher.blocks() - 1
    publisher.stage.commit(first)
    publisher.stage.commit(first + 1)
    publisher.send(WINDOW)
    assert publisher.blocks() == first + 1
    publisher.send(WINDOW)
    assert publisher.blocks() == first + 2


def test_most_of_an_answer_is_enough() -> None:
    publisher = _Publisher()
    before = publisher.blocks()
    publisher.send(WINDOW - WINDOW // 8)
    assert publisher.blocks() == before + 1


def test_clients_of_the_leader_are_not_waited_for() -> None:
    publisher = _Publisher(is_relayed=False)
    before = publisher.blocks()
    publisher.send(1)
    assert publisher.blocks() == before + 1


def test_answer_to_few_confirms_is_not_waited_for() -> None:
    publisher = _Publisher(window=FEW)
    before = publisher.blocks()
    publisher.send(1)
    assert publisher.blocks() == before + 1


def test_much_that_waits_to_be_written_is_written() -> None:
    publisher = _Publisher()
    before = publisher.blocks()
    publisher.peer.feed(publish(1, "q", bytes(300_000), PERSISTENT))
    assert publisher.blocks() == before + 1


def test_message_of_another_client_ends_the_wait() -> None:
    publisher = _Publisher()
    other = publisher.opened(is_relayed=True)
    publisher.send(1)
    before = publisher.blocks()
    other.feed(publish(1, "q", b"m", PERSISTENT))
    assert publisher.blocks() == before + 1


def test_no_wait_begins_while_a_message_of_another_client_waits() -> None:
    publisher = _Publisher()
    other = publisher.opened(is_relayed=True)
    publisher.stage.followers.bytes_max = 1  # one block at a time
    publisher.send(WINDOW)
    before = publisher.blocks()
    other.feed(publish(1, "q", b"m", PERSISTENT))
    publisher.commit()
    assert publisher.blocks() == before + 1


def test_publisher_whose_answer_is_there_waits_for_no_other() -> None:
    publisher = _Publisher()
    peers = [publisher.peer, publisher.opened(is_relayed=True)]
    window = b"".join(publish(1, "q", b"m", PERSISTENT) for _ in range(WINDOW))
    publisher.send(WINDOW)
    peers[1].feed(window)
    publisher.commit()
    before = publisher.blocks()
    publisher.send(1)
    assert publisher.blocks() == before
    peers[1].feed(window)
    assert publisher.blocks() == before + 1


def test_wait_ends_after_a_time_and_no_answers_are_expected_for_a_while() -> None:
    publisher = _Publisher()
    before = publisher.blocks()
    publisher.send(1)
    assert publisher.blocks() == before
    publisher.stage.run_timers()
    assert publisher.blocks() == before + 1
    for _ in range(2):
        publisher.send(WINDOW)
        publisher.commit()
        before = publisher.blocks()
        publisher.send(1)
        assert publisher.blocks() == before + 1
        publisher.commit()
    publisher.send(WINDOW)
    publisher.commit()
    before = publisher.blocks()
    publisher.send(1)
    assert publisher.blocks() == before


def test_timer_of_an_earlier_wait_does_not_end_a_later_one() -> None:
    publisher = _Publisher()
    publisher.send(WINDOW)
    publisher.commit()
    before = publisher.blocks()
    publisher.send(1)
    publisher.stage.run_timers()
    assert publisher.blocks() == before
    publisher.stage.run_timers()
    assert publisher.blocks() == before + 1


def test_leader_that_ends_does_not_write_what_has_waited() -> None:
    publisher = _Publisher()
    publisher.send(1)
    before = publisher.blocks()
    publisher.stage.store.abandon()
    for timer in publisher.stage.loop.waiting():
        timer.run()
    assert publisher.blocks() == before
