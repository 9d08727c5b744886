"""Queues as a library: single calls with a clock that the test moves, and calls by many threads.

Under threads every message must be acked exactly once, or end as a dead letter.
"""

import gc
import random
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from leveret.embedded import Queue, QueueManager, Received, Stats
from leveret.embedded.leases import Leases
from leveret.errors import ClosedError, NotFoundError, PreconditionFailedError, StaleReceiptError

HOUR_MS = 3_600_000


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queues(clock: Clock) -> QueueManager:
    return QueueManager(clock)


def bodies(queue: Queue) -> list[bytes]:
    """Pop and return all ready messages, in order. They stay in flight."""
    taken: list[bytes] = []
    while (received := queue.pop()) is not None:
        taken.append(received.body)
    return taken


def popped(queue: Queue) -> Received:
    received = queue.pop()
    assert received is not None
    return received


# Order


def test_messages_come_in_the_order_in_which_they_were_pushed(queues: QueueManager) -> None:
    queue = queues.queue("q")
    ids = [queue.push(body) for body in (b"a", b"b", b"c")]
    assert ids == sorted(set(ids))
    assert bodies(queue) == [b"a", b"b", b"c"]


def test_higher_priorities_come_first_and_equals_in_order(queues: QueueManager) -> None:
    queue = queues.queue("q")
    for priority in (0, -1, 2**31 - 1, 7, -(2**31), 7, 0):
        queue.push(str(priority).encode(), priority=priority)
    received = [popped(queue) for _ in range(7)]
    order = [2**31 - 1, 7, 7, 0, 0, -1, -(2**31)]
    assert [r.priority for r in received] == order
    assert [int(r.body) for r in received] == order
    assert received[1].id < received[2].id


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1])
def test_a_priority_of_more_than_32_bits_is_refused(queues: QueueManager, priority: int) -> None:
    with pytest.raises(PreconditionFailedError, match="priority"):
        queues.queue("q").push(b"", priority=priority)


def test_a_returned_message_goes_to_its_old_place(queues: QueueManager) -> None:
    queue = queues.queue("q")
    for body in (b"a", b"b", b"c"):
        queue.push(body)
    first, second = popped(queue), popped(queue)
    queue.nack(second)
    queue.nack(first)
    assert bodies(queue) == [b"a", b"b", b"c"]


# Delays


def test_a_delayed_message_is_there_when_its_time_has_come(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q")
    queue.push(b"late", delay_s=0.5)
    queue.push(b"now")
    assert bodies(queue) == [b"now"]
    assert queue.stats().scheduled == 1
    clock.now_ms += 499
    assert queue.pop() is None
    clock.now_ms += 1
    assert bodies(queue) == [b"late"]


def test_delayed_messages_come_by_their_times_whatever_the_order_of_pushes(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q")
    for delay_ms in (300, 100, 200, 100):
        queue.push(str(delay_ms).encode(), delay_s=delay_ms / 1000)
    clock.now_ms += 300
    assert bodies(queue) == [b"100", b"100", b"200", b"300"]


# Leases


def test_an_acked_message_is_gone(queues: QueueManager, clock: Clock) -> None:
    queue = queues.queue("q")
    queue.push(b"a")
    queue.ack(popped(queue))
    clock.now_ms += HOUR_MS
    assert queue.pop() is None
    assert queue.stats() == Stats(pushed=1, ready=0, in_flight=0, scheduled=0, acked=1, dead=0)


def test_a_message_is_hidden_until_its_visibility_timeout(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q", visibility_timeout_s=1)
    queue.push(b"a")
    first = popped(queue)
    clock.now_ms += 999
    assert queue.pop() is None
    clock.now_ms += 1
    second = popped(queue)
    assert (second.id, second.body, second.attempts) == (first.id, b"a", 2)
    assert second.receipt != first.receipt


def test_a_pop_may_ask_for_a_timeout_of_its_own(queues: QueueManager, clock: Clock) -> None:
    queue = queues.queue("q", visibility_timeout_s=1)
    queue.push(b"long")
    queue.push(b"short")
    queue.pop(visibility_timeout_s=5)
    queue.pop(visibility_timeout_s=0.01)
    clock.now_ms += 10
    assert bodies(queue) == [b"short"]
    clock.now_ms += 4990
    assert bodies(queue) == [b"long", b"short"]


def test_extend_moves_the_deadline_to_later_or_sooner(queues: QueueManager, clock: Clock) -> None:
    queue = queues.queue("q", visibility_timeout_s=1)
    queue.push(b"a")
    received = popped(queue)
    clock.now_ms += 900
    queue.extend(received, 1)
    clock.now_ms += 999
    assert queue.pop() is None
    queue.extend(received, 0.01)
    clock.now_ms += 10
    assert popped(queue).attempts == 2


def test_a_receipt_is_stale_once_the_message_has_another_holder(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q", visibility_timeout_s=1)
    queue.push(b"a")
    late = popped(queue)
    clock.now_ms += 1000
    holder = popped(queue)
    calls: list[Callable[[], None]] = [
        lambda: queue.ack(late),
        lambda: queue.nack(late),
        lambda: queue.extend(late, 1),
    ]
    for call in calls:
        with pytest.raises(StaleReceiptError, match="no longer held"):
            call()
    queue.ack(holder)
    assert queue.stats().acked == 1


def test_a_message_can_be_settled_only_once(queues: QueueManager) -> None:
    queue = queues.queue("q")
    queue.push(b"a")
    received = popped(queue)
    queue.ack(received)
    with pytest.raises(StaleReceiptError):
        queue.ack(received)
    with pytest.raises(StaleReceiptError):
        queues.queue("other").ack(received)


def test_nack_brings_a_message_back_at_once_or_after_a_delay(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q")
    queue.push(b"a")
    queue.nack(popped(queue))
    again = popped(queue)
    assert again.attempts == 2
    queue.nack(again, delay_s=0.1)
    assert queue.pop() is None
    assert queue.stats().scheduled == 1
    clock.now_ms += 100
    assert popped(queue).attempts == 3


def test_a_delayed_nack_does_not_delay_what_times_out_later(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q", visibility_timeout_s=0.05)
    queue.push(b"nacked")
    queue.push(b"forgotten")
    queue.nack(popped(queue), delay_s=HOUR_MS / 1000)
    popped(queue)
    clock.now_ms += 50
    assert bodies(queue) == [b"forgotten"]


# Failing too often


def test_timeouts_and_nacks_count_and_the_dead_go_to_the_dead_letter_queue(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q", visibility_timeout_s=0.01, retries_max=2, dead_letter="dead")
    queue.push(b"a", priority=3, headers={"tried": "often"})
    popped(queue)
    clock.now_ms += 10
    queue.nack(popped(queue))
    popped(queue)
    clock.now_ms += 10
    assert queue.pop() is None
    assert queue.stats() == Stats(pushed=1, ready=0, in_flight=0, scheduled=0, acked=0, dead=1)
    dead = queues.pop("dead")
    assert dead is not None
    assert (dead.body, dead.priority, dead.attempts) == (b"a", 3, 1)
    assert dead.headers == {"tried": "often", "x-death-queue": "q", "x-death-attempts": "3"}


def test_a_call_with_a_stale_receipt_still_moves_dead_letters(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q", visibility_timeout_s=0.01, retries_max=0, dead_letter="dead")
    queue.push(b"a")
    received = popped(queue)
    clock.now_ms += 10
    with pytest.raises(StaleReceiptError):
        queue.ack(received)
    assert queues.stats("dead").ready == 1


def test_without_a_dead_letter_queue_the_dead_are_dropped_and_counted(
    queues: QueueManager,
) -> None:
    queue = queues.queue("q", retries_max=0)
    queue.push(b"a")
    queue.nack(popped(queue))
    assert queue.stats() == Stats(pushed=1, ready=0, in_flight=0, scheduled=0, acked=0, dead=1)


def test_without_a_limit_a_message_is_retried_for_ever(queues: QueueManager, clock: Clock) -> None:
    queue = queues.queue("q", visibility_timeout_s=0.01)
    queue.push(b"a")
    for attempts in range(1, 101):
        assert popped(queue).attempts == attempts
        clock.now_ms += 10
    assert queue.stats().dead == 0


def test_dead_letters_may_die_again_in_a_ring_of_queues(queues: QueueManager) -> None:
    queues.queue("a")
    with pytest.raises(PreconditionFailedError, match="own dead-letter"):
        queues.queue("self", dead_letter="self")
    first = queues.queue("b", retries_max=0, dead_letter="a")
    second = queues.queue("c", retries_max=0, dead_letter="b")
    second.push(b"x")
    second.nack(popped(second))
    first.nack(popped(first))
    assert queues.stats("a").ready == 1


# Settings and limits


def test_a_full_queue_refuses_pushes_but_takes_dead_letters(queues: QueueManager) -> None:
    dead = queues.queue("dead", length_max=1)
    queue = queues.queue("q", retries_max=0, dead_letter="dead", length_max=2)
    dead.push(b"there")
    queue.push(b"a")
    queue.push(b"b", delay_s=HOUR_MS / 1000)
    with pytest.raises(PreconditionFailedError, match="full"):
        queue.push(b"c")
    queue.nack(popped(queue))
    assert dead.stats().ready == 2


def test_a_queue_is_made_once_and_its_settings_stay(queues: QueueManager) -> None:
    queue = queues.queue("q", retries_max=1)
    assert queues.queue("q", retries_max=1) is queue
    with pytest.raises(PreconditionFailedError, match="other settings"):
        queues.queue("q", retries_max=2)
    with pytest.raises(NotFoundError, match="no queue 'r'"):
        queues.push("r", b"")
    assert queues.names() == ["q"]


def test_numbers_out_of_range_are_refused(queues: QueueManager) -> None:
    queue = queues.queue("q")
    queue.push(b"a")
    received = popped(queue)
    with pytest.raises(PreconditionFailedError, match="visibility_timeout_s"):
        queues.queue("r", visibility_timeout_s=0)
    with pytest.raises(PreconditionFailedError, match="retries_max"):
        queues.queue("r", retries_max=-1)
    with pytest.raises(PreconditionFailedError, match="length_max"):
        queues.queue("r", length_max=-1)
    with pytest.raises(PreconditionFailedError, match="delay_s"):
        queue.push(b"", delay_s=-1 / 1000)
    with pytest.raises(PreconditionFailedError, match="delay_s"):
        queue.nack(received, delay_s=2**62 / 1000)
    with pytest.raises(PreconditionFailedError, match="visibility_timeout_s"):
        queue.extend(received, 0)
    with pytest.raises(PreconditionFailedError, match="visibility_timeout_s"):
        queue.pop(visibility_timeout_s=2**62 / 1000)


def test_the_manager_does_by_name_what_its_queues_do(queues: QueueManager, clock: Clock) -> None:
    queues.queue("q", visibility_timeout_s=0.01)
    queues.push("q", b"a", priority=1, headers={"k": "ö"})
    received = queues.pop("q")
    assert received is not None
    assert (received.queue, received.headers) == ("q", {"k": "ö"})
    queues.extend(received, 1)
    queues.nack(received, delay_s=0.005)
    clock.now_ms += 5
    again = queues.pop("q", visibility_timeout_s=0.02)
    assert again is not None
    queues.ack(again)
    assert queues.stats("q").acked == 1


# Waiting


def test_a_waiting_pop_gets_what_another_thread_pushes() -> None:
    with QueueManager() as queues:
        queue = queues.queue("q")
        thread = threading.Thread(target=queue.push, args=(b"a",))
        thread.start()
        received = queue.pop(wait_s=60)
        thread.join()
        assert received is not None and received.body == b"a"


def test_a_pop_that_waits_in_vain_gives_up(queues: QueueManager) -> None:
    assert queues.queue("q").pop(wait_s=0.001) is None


def test_the_pulse_wakes_a_waiting_pop_when_a_message_is_due() -> None:
    with QueueManager() as queues:
        queue = queues.queue("q", visibility_timeout_s=0.005, retries_max=1, dead_letter="dead")
        queue.push(b"a", delay_s=0.005)
        assert [queue.pop(wait_s=60) is not None for _ in range(2)] == [True, True]
        dead = queues.pop("dead", wait_s=60)
        assert dead is not None and dead.body == b"a"


def test_a_clock_that_is_moved_by_hand_moves_waiting_threads(
    queues: QueueManager, clock: Clock
) -> None:
    queue = queues.queue("q")
    queue.push(b"a", delay_s=HOUR_MS / 1000)
    found: list[Received | None] = []
    thread = threading.Thread(target=lambda: found.append(queue.pop(wait_s=60)))
    thread.start()
    clock.now_ms += HOUR_MS
    queues.clock_moved()
    thread.join()
    assert found[0] is not None and found[0].body == b"a"
    queues.close()


def test_closing_ends_every_wait_and_every_later_call() -> None:
    queues = QueueManager()
    queue = queues.queue("q")
    queue.push(b"a", delay_s=HOUR_MS / 1000)
    failures: list[type[BaseException]] = []

    def wait() -> None:
        try:
            queue.pop(wait_s=60)
        except ClosedError as failure:
            failures.append(type(failure))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    queues.close()
    queues.close()
    for thread in threads:
        thread.join()
    assert failures == [ClosedError] * 3
    calls: list[Callable[[], object]] = [
        queue.pop,
        queue.stats,
        lambda: queue.push(b""),
        lambda: queues.queue("r"),
    ]
    for call in calls:
        with pytest.raises(ClosedError):
            call()


# The pulse


def pulse_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "leveret-pulse"}


def test_no_thread_is_started_while_nothing_waits_for_time() -> None:
    before = pulse_threads()
    with QueueManager() as queues:
        queues.queue("q").push(b"a")
        assert queues.queue("q").stats().ready == 1
        assert pulse_threads() == before


def test_the_pulse_sleeps_while_nothing_is_due() -> None:
    with QueueManager() as queues:
        queue = queues.queue("q", visibility_timeout_s=HOUR_MS / 1000)
        queue.push(b"later", delay_s=HOUR_MS / 1000)
        for _ in range(1000):
            queue.push(b"a")
            queue.ack(popped(queue))
            queue.push(b"b", delay_s=(2 * HOUR_MS) / 1000)
        assert queues.wakes == 0


def test_the_pulse_wakes_once_for_each_time_and_once_for_what_is_due_earlier() -> None:
    with QueueManager() as queues:
        queue = queues.queue("q", visibility_timeout_s=HOUR_MS / 1000)
        other = queues.queue("other")
        queue.push(b"a", delay_s=HOUR_MS / 1000)
        other.push(b"c", delay_s=(2 * HOUR_MS) / 1000)
        queue.push(b"b", delay_s=0.02)
        received = queue.pop(wait_s=60)
        assert received is not None and received.body == b"b"
        assert queues.wakes <= 2
        assert queue.pop(wait_s=0.001) is None
        assert queues.wakes <= 2


def test_a_manager_that_is_dropped_without_close_leaves_no_thread_and_no_queue() -> None:
    before = pulse_threads()
    queues = QueueManager()
    queue = queues.queue("q", retries_max=1, dead_letter="dead")
    queue.push(b"a", delay_s=HOUR_MS / 1000)
    queue.push(b"b")
    popped(queue)
    (thread,) = pulse_threads() - before
    traces: list[weakref.ref[Any]] = [weakref.ref(queues), weakref.ref(queue)]
    del queues
    assert thread.is_alive()  # the queue is in use and keeps its pulse
    del queue
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
    assert [trace() for trace in traces] == [None, None]


# Costs


def calls_of_a_pop(queue: Queue) -> int:
    """Return how many Python and C functions run while one message is popped."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    sys.setprofile(count)
    try:
        received = queue.pop()
    finally:
        sys.setprofile(None)
    assert received is not None
    return calls


def test_scheduled_messages_do_not_slow_a_pop(queues: QueueManager) -> None:
    alone, crowded = queues.queue("alone"), queues.queue("crowded")
    for number in range(100_000):
        crowded.push(b"", delay_s=(HOUR_MS + number) / 1000)
    for queue in (alone, crowded):
        queue.push(b"a")
        queue.push(b"b")
        popped(queue)
    assert calls_of_a_pop(crowded) == calls_of_a_pop(alone)


def test_many_priorities_in_use_do_not_slow_a_pop(queues: QueueManager) -> None:
    few, many = queues.queue("few"), queues.queue("many")
    for number in range(20_000):
        many.push(b"", priority=number)
    for number in range(3):
        few.push(b"", priority=number)
    popped(few), popped(many)
    assert calls_of_a_pop(many) == calls_of_a_pop(few)


def test_leases_that_ended_in_time_are_forgotten() -> None:
    leases = Leases()
    leases.hold(0, 10**9)
    for receipt in range(1, 10_000):
        leases.hold(receipt, 1000 + receipt)
        assert leases.end(receipt)
        assert len(leases.heap) < 100
    assert leases.next_due_ms() == 10**9


# Threads

NAMES = ("a", "b", "c")
PUSHED_BY_EACH = 500


def produce(queues: QueueManager, name: str, chance: random.Random) -> None:
    for number in range(PUSHED_BY_EACH):
        body = f"{name}.{number}".encode()
        queues.push(
            name, body, priority=chance.randrange(3), delay_s=chance.choice((0, 0, 2)) / 1000
        )


def consume(queues: QueueManager, seed: int, acked: list[bytes], failures: list[str]) -> None:
    chance = random.Random(seed)
    try:
        while any(
            queues.stats(name).acked + queues.stats(name).dead < PUSHED_BY_EACH for name in NAMES
        ):
            name = chance.choice(NAMES)
            received = queues.pop(name, wait_s=0.002)
            if received is not None:
                settle(queues, received, chance, acked)
    except BaseException as failure:
        failures.append(repr(failure))
        raise


def settle(
    queues: QueueManager, received: Received, chance: random.Random, acked: list[bytes]
) -> None:
    """Ack most messages, nack some, extend or ignore a few. A receipt may become stale."""
    dice = chance.random()
    try:
        if dice < 0.05:
            return
        if dice < 0.1:
            queues.extend(received, 0.05)
        if dice < 0.3:
            queues.nack(received, delay_s=chance.choice((0, 0, 1)) / 1000)
        else:
            queues.ack(received)
            acked.append(received.body)
    except StaleReceiptError:
        pass


def test_threads_ack_every_message_once_or_it_ends_as_a_dead_letter(seed: int) -> None:
    print(f"seed {seed}")
    acked: list[bytes] = []  # list.append is atomic
    failures: list[str] = []
    with QueueManager() as queues:
        for name in NAMES:
            queues.queue(name, visibility_timeout_s=0.02, retries_max=2, dead_letter="dead")
        threads = [
            threading.Thread(target=produce, args=(queues, name, random.Random(f"{seed}{name}")))
            for name in NAMES
        ] + [
            threading.Thread(target=consume, args=(queues, seed + number, acked, failures))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        dead = bodies(queues.queue("dead"))
        wanted = {f"{name}.{number}".encode() for name in NAMES for number in range(PUSHED_BY_EACH)}
        assert Counter(acked + dead) == Counter(wanted)
        assert {queues.stats(name)[:4] for name in NAMES} == {(PUSHED_BY_EACH, 0, 0, 0)}
