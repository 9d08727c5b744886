"""Arrival times of messages: precision, number of marks, and the age of the oldest message."""

from random import Random

from leveret.engine.backlog.arrival_times import GRAIN_MS, MARKS_MAX, UNKNOWN, ArrivalTimes
from tests.protocol.stage import START_MS
from tests.unit.engine.front import Client


def come(ages: ArrivalTimes, count: int, now_ms: int) -> None:
    """Let a number of messages arrive in one turn, as a queue does."""
    if ages.wants_mark(now_ms):
        ages.mark(now_ms)
    ages.next_seq += count


def test_arrival_time_is_exact_to_a_second() -> None:
    ages = ArrivalTimes()
    come(ages, 3, 10_000)
    come(ages, 2, 10_900)
    come(ages, 1, 11_000)
    assert [ages.arrived_ms(seq) for seq in range(6)] == [10_000] * 5 + [11_000]


def test_arrival_time_is_unknown_without_marks() -> None:
    assert ArrivalTimes().arrived_ms(0) == UNKNOWN


def test_marks_are_bounded_and_lose_precision_with_age_only(seed: int) -> None:
    rng = Random(seed)
    ages = ArrivalTimes()
    came: list[int] = []
    now_ms = 1_000_000
    for _ in range(20_000):
        now_ms += rng.randrange(200, 5000)
        come(ages, 1, now_ms)
        came.append(now_ms)
    assert len(ages.seqs) <= MARKS_MAX
    for seq, true_ms in enumerate(came):
        error_ms = true_ms - int(ages.arrived_ms(seq))
        age_ms = now_ms - true_ms
        assert 0 <= error_ms <= max(GRAIN_MS, age_ms * 0.2), (seed, seq, error_ms, age_ms)
    recent = [seq for seq, true_ms in enumerate(came) if now_ms - true_ms < 20_000]
    assert all(came[seq] - ages.arrived_ms(seq) < 5 * GRAIN_MS for seq in recent)


def age_ms(client: Client, name: str = "q") -> int:
    oldest_ms = client.stage.broker.vhost("/").queues[name].oldest_ready_ms()
    return client.stage.now_ms - oldest_ms if oldest_ms != UNKNOWN else -1


def test_age_of_the_oldest_ready_message_grows_until_it_is_taken() -> None:
    client = Client()
    client.queue("q")
    assert age_ms(client) == -1
    client.publish("q", "a")
    client.advance(60_000)
    client.publish("q", "b")
    assert age_ms(client) == 60_000
    assert client.get("q") is not None
    assert age_ms(client) == 0
    assert client.get("q") is not None
    assert age_ms(client) == -1


def test_returned_message_keeps_its_age() -> None:
    client = Client()
    client.queue("q")
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.advance(30_000)
    client.publish("q", "b")
    assert age_ms(client) == 0
    client.nack(1)
    assert age_ms(client) == 30_000


def test_refused_publishes_do_not_change_the_age_of_a_full_queue() -> None:
    client = Client()
    client.queue("q", x_max_length=1, x_overflow="reject-publish")
    client.publish("q", "a")
    for _ in range(10):
        client.advance(10_000)
        client.publish("q", "refused")
    assert age_ms(client) == 100_000


def test_age_of_a_scheduled_message_starts_when_it_is_due() -> None:
    client = Client()
    client.queue("q", x_delayed=True)
    client.publish("q", "a", headers={"x-delay": 50_000})
    client.advance(50_000)
    client.advance(7_000)
    assert age_ms(client) == 7_000


def test_oldest_message_may_have_the_lowest_priority() -> None:
    client = Client()
    client.queue("q", x_max_priority=5)
    client.publish("q", "a", priority=0)
    client.advance(9_000)
    client.publish("q", "b", priority=5)
    assert age_ms(client) == 9_000


def test_queue_that_is_emptied_regularly_needs_one_mark() -> None:
    client = Client()
    queue = client.queue("q")
    client.consume("q", no_ack=True)
    for _ in range(50):
        client.publish("q", "a")
        client.advance(2_000)
    assert len(queue.arrival_times.seqs) == 1
    assert queue.arrival_times.last_ms > START_MS
