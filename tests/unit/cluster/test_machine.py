"""The replicated queue, command by command."""

from leveret.cluster.commands import (
    DETACH,
    DISCARD,
    DOWN,
    PURGE,
    RETURN,
    SETTLE,
    TIMEOUT,
    body_of,
    encode_attach,
    encode_bare,
    encode_configure,
    encode_enqueue,
    encode_of,
    encode_verdict,
)
from leveret.cluster.machine import (
    CONFIRM,
    DEAD_LETTER,
    DELIVER,
    DELIVERY_LIMIT,
    ENDED,
    EXPIRED,
    MAXLEN,
    OUT_OF_SEQUENCE,
    REJECTED,
    SETTLED,
    WAKE,
    Effect,
    Machine,
)
from leveret.cluster.machine_state import Settings
from leveret.errors import LeveretError, NewerFormatError

PUBLISHER = 11
CONSUMER = 21
OWNER = 31


class Queue:
    """A machine and the index of its log."""

    def __init__(self, **rules: int) -> None:
        self.machine = Machine()
        self.index = 0
        self.now_ms = 1000
        self.seq = 0
        if rules:
            settings = Settings()
            for name, value in rules.items():
                setattr(settings, name, value)
            self.do(encode_configure(self.now_ms, settings))

    def do(self, command: bytes) -> list[tuple[int, int, int, int]]:
        self.index += 1
        return [row(effect) for effect in self.machine.apply(self.index, command)]

    def enqueue(self, ttl_ms: int = 0) -> list[tuple[int, int, int, int]]:
        self.seq += 1
        return self.do(encode_enqueue(self.now_ms, PUBLISHER, self.seq, ttl_ms, b"body"))

    def attach(self, prefetch: int) -> list[tuple[int, int, int, int]]:
        return self.do(encode_attach(self.now_ms, CONSUMER, OWNER, prefetch))

    def verdict(self, kind: int, *tags: int) -> list[tuple[int, int, int, int]]:
        return self.do(encode_verdict(kind, self.now_ms, CONSUMER, list(tags)))


def row(effect: Effect) -> tuple[int, int, int, int]:
    return effect.kind, effect.target, effect.index, effect.number


def test_enqueue_is_confirmed_and_delivered_within_the_prefetch() -> None:
    queue = Queue()
    assert queue.enqueue() == [(CONFIRM, PUBLISHER, 1, 1)]
    queue.enqueue()
    assert queue.attach(1) == [(DELIVER, CONSUMER, 1, 1)]
    assert queue.verdict(SETTLE, 1) == [(SETTLED, CONSUMER, 1, 1), (DELIVER, CONSUMER, 2, 2)]
    assert queue.machine.live_indexes() == [2]


def test_number_that_came_before_is_confirmed_and_not_queued_again() -> None:
    queue = Queue()
    queue.enqueue()
    queue.seq = 0
    assert queue.enqueue() == [(CONFIRM, PUBLISHER, 0, 1)]
    assert queue.machine.ready_count() == 1
    queue.seq = 5
    assert queue.enqueue() == [(OUT_OF_SEQUENCE, PUBLISHER, 0, 2)]


def test_returned_message_comes_first_and_leaves_at_its_limit() -> None:
    queue = Queue(delivery_limit=1, dead_letters=True)
    queue.enqueue()
    queue.enqueue()
    queue.attach(1)
    assert queue.verdict(RETURN, 1) == [(SETTLED, CONSUMER, 2, 1), (DELIVER, CONSUMER, 2, 2)]
    assert queue.verdict(RETURN, 2) == [
        (SETTLED, CONSUMER, 2, 2),
        (DEAD_LETTER, 0, 2, DELIVERY_LIMIT),
        (DELIVER, CONSUMER, 3, 3),
    ]


def test_verdict_that_comes_twice_is_not_taken_for_the_next_delivery() -> None:
    queue = Queue()
    queue.enqueue()
    queue.attach(1)
    queue.verdict(RETURN, 1)
    assert queue.verdict(RETURN, 1) == [(SETTLED, CONSUMER, 0, 1)]
    assert queue.machine.contents.messages[1].returns == 1


def test_dead_letter_stays_until_it_has_arrived() -> None:
    queue = Queue(dead_letters=True)
    queue.enqueue()
    queue.attach(1)
    assert (DEAD_LETTER, 0, 2, REJECTED) in queue.verdict(DISCARD, 1)
    assert queue.machine.live_indexes() == [2]
    assert (DEAD_LETTER, 0, 2, REJECTED) in [row(effect) for effect in queue.machine.resume()]
    queue.do(encode_verdict(SETTLE, queue.now_ms, 0, [2]))
    assert queue.machine.live_indexes() == []


def test_message_expires_by_the_time_of_the_leader() -> None:
    queue = Queue(dead_letters=True)
    assert (WAKE, 0, 0, 1500) in queue.enqueue(ttl_ms=500)
    assert queue.do(encode_bare(TIMEOUT, 1499)) == [(WAKE, 0, 0, 1500)]
    assert queue.do(encode_bare(TIMEOUT, 1500)) == [(DEAD_LETTER, 0, 2, EXPIRED)]


def test_a_message_that_expired_behind_another_is_not_delivered() -> None:
    queue = Queue(dead_letters=True)
    queue.enqueue()
    queue.enqueue(ttl_ms=500)
    queue.enqueue(ttl_ms=500)
    queue.enqueue()
    queue.now_ms = 1500
    assert queue.attach(2) == [
        (DELIVER, CONSUMER, 2, 1),
        (DEAD_LETTER, 0, 3, EXPIRED),
        (DEAD_LETTER, 0, 4, EXPIRED),
        (DELIVER, CONSUMER, 5, 2),
    ]


def test_time_never_goes_back() -> None:
    queue = Queue()
    queue.do(encode_bare(TIMEOUT, 5000))
    queue.do(encode_bare(TIMEOUT, 4000))
    assert queue.machine.contents.now_ms == 5000


def test_oldest_leaves_a_queue_that_is_too_long() -> None:
    queue = Queue(max_length=1, dead_letters=True)
    queue.enqueue()
    assert queue.machine.is_full()
    assert (DEAD_LETTER, 0, 2, MAXLEN) in queue.enqueue()


def test_message_held_too_long_goes_back() -> None:
    queue = Queue(hold_ms_max=100)
    queue.enqueue()
    assert (WAKE, 0, 0, 1100) in queue.attach(1)
    assert (DELIVER, CONSUMER, 2, 2) in queue.do(encode_bare(TIMEOUT, 1100))


def test_purge_takes_what_is_ready_and_leaves_what_is_held() -> None:
    queue = Queue()
    queue.enqueue()
    queue.enqueue()
    queue.attach(1)
    queue.do(encode_bare(PURGE, queue.now_ms))
    assert queue.machine.live_indexes() == [1]


def test_detached_consumer_keeps_what_it_holds_and_ends_with_it() -> None:
    queue = Queue()
    queue.enqueue()
    queue.attach(5)
    assert queue.do(encode_of(DETACH, queue.now_ms, CONSUMER)) == []
    assert queue.enqueue() == [(CONFIRM, PUBLISHER, 4, 2)]
    assert queue.verdict(SETTLE, 1) == [(SETTLED, CONSUMER, 1, 1), (ENDED, CONSUMER, 0, 0)]


def test_owner_that_is_down_gives_everything_back() -> None:
    queue = Queue()
    queue.enqueue()
    queue.attach(5)
    assert queue.do(encode_of(DOWN, queue.now_ms, OWNER)) == [(ENDED, CONSUMER, 0, 0)]
    assert queue.machine.ready_count() == 1


def test_single_active_consumer_gets_everything() -> None:
    queue = Queue(single_active=True)
    queue.attach(5)
    queue.do(encode_attach(queue.now_ms, CONSUMER + 1, OWNER, 5))
    delivered = [queue.enqueue()[-1][1] for _ in range(3)]
    assert delivered == [CONSUMER, CONSUMER, CONSUMER]


def test_machine_goes_on_from_its_snapshot_like_the_one_that_made_it() -> None:
    queue = Queue(delivery_limit=2, dead_letters=True, hold_ms_max=50)
    queue.attach(2)
    for _ in range(6):
        queue.enqueue(ttl_ms=5000)
    queue.verdict(RETURN, 1)
    queue.verdict(DISCARD, 2)
    copy = Machine()
    copy.restore(queue.machine.snapshot())
    assert copy.snapshot() == queue.machine.snapshot()
    command = encode_bare(TIMEOUT, 1080)
    ours = [row(effect) for effect in queue.machine.apply(99, command)]
    assert [row(effect) for effect in copy.apply(99, command)] == ours
    assert copy.snapshot() == queue.machine.snapshot()


def test_new_leader_delivers_again_what_is_held() -> None:
    queue = Queue()
    queue.enqueue()
    queue.attach(1)
    assert [row(effect) for effect in queue.machine.resume()] == [(DELIVER, CONSUMER, 1, 1)]


def test_body_stands_in_the_command() -> None:
    assert body_of(encode_enqueue(1, 2, 3, 4, b"the body")) == b"the body"


def test_commands_and_snapshots_of_a_later_version_stop_the_machine() -> None:
    machine = Machine()
    command = encode_bare(PURGE, 1)
    refused: list[type[LeveretError]] = []
    for data in (b"\x09" + command[1:], b"\x09" + machine.snapshot()[1:]):
        try:
            if len(refused):
                machine.restore(data)
            else:
                machine.apply(1, data)
        except NewerFormatError as error:
            refused.append(type(error))
    assert refused == [NewerFormatError, NewerFormatError]
