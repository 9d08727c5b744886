"""Handler results and retry counts, without a broker."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from leveret.bus import Delivery, DeliveryOutcome, HandlerResult, RetryPolicy, fanout, topic
from leveret.bus import headers as bus_headers
from leveret.bus.handler_result import Action, Decision, decide, result_of_return
from leveret.bus.topology import wait_step_ms

pytestmark = pytest.mark.compiled_only("the library is the same in both forms")
FANOUT, TOPIC = fanout.layout("wms-a"), topic.layout("q")
QUEUE = "wms.queue.wms-a"
ACK, RETRY, REQUEUE = DeliveryOutcome.ACK, DeliveryOutcome.RETRY, DeliveryOutcome.REQUEUE


def death(queue: str, reason: str, count: object) -> dict[str, Any]:
    return {"queue": queue, "reason": reason, "count": count}


def test_outcome_of_every_status_in_the_fanout_topology() -> None:
    for code in range(200, 600):
        expected = ACK if code < 300 else REQUEUE if code == 425 else RETRY
        assert result_of_return(code, FANOUT) == HandlerResult(expected, code)


def test_topic_topology_has_permanent_faults() -> None:
    for code in range(400, 500):
        dead = code not in (409, 425, 429)
        assert (result_of_return(code, TOPIC).outcome is DeliveryOutcome.DEAD_LETTER) == dead
    assert result_of_return(503, TOPIC).outcome is RETRY


def test_none_is_success_and_an_outcome_is_itself() -> None:
    assert result_of_return(None, FANOUT).outcome is ACK
    assert result_of_return(DeliveryOutcome.REQUEUE, FANOUT).outcome is REQUEUE


@pytest.mark.parametrize("retries", [0, 9, 10, 11, 1_000])
def test_retry_limit_ends_only_failures(retries: int) -> None:
    policy = RetryPolicy.of(FANOUT)
    assert decide(HandlerResult(ACK), retries, FANOUT, policy, 1.0).action is Action.ACK
    assert decide(HandlerResult(REQUEUE), retries, FANOUT, policy, 1.0) == Decision(
        Action.WAIT, 1000
    )
    expected = (
        Decision(Action.REJECT, 5_000) if retries < 10 else Decision(Action.DEAD_LETTER, 0, True)
    )
    assert decide(HandlerResult(RETRY, 500), retries, FANOUT, policy, 1.0) == expected


def test_only_rejects_of_the_own_queue_count() -> None:
    deaths = [
        death("wms.retry-queue.wms-a", "expired", 7),
        death(QUEUE, "rejected", 4),
        death(QUEUE, "expired", 9),
        death("wms.queue.wms-b", "rejected", 9),
    ]
    assert bus_headers.retry_count({"x-death": deaths}, QUEUE) == 4
    assert bus_headers.retry_count({"x-death": deaths, "x-retry-count": 3}, QUEUE) == 7


@pytest.mark.parametrize(
    "headers",
    [
        {"x-death": "no list"},
        {"x-death": [1, None, {"count": "many"}]},
        {"x-death": [death(QUEUE, "rejected", -5)]},
        {"x-death": [death(QUEUE, "rejected", 1 << 70)]},
        {"x-retry-count": -1},
        {"x-retry-count": True},
        {"x-retry-count": "nine"},
        {"x-retry-count": None},
    ],
)
def test_malformed_count_is_zero(headers: dict[str, Any]) -> None:
    assert bus_headers.retry_count(headers, QUEUE) == 0


@given(
    rejects=st.integers(0, 50),
    carried=st.integers(0, 50),
    more=st.integers(0, 5),
    continues=st.booleans(),
)
def test_copy_has_the_wanted_retry_count_on_every_broker(
    rejects: int, carried: int, more: int, continues: bool
) -> None:
    headers = {"x-death": [death(QUEUE, "rejected", rejects)], "x-retry-count": carried, "k": "v"}
    count = rejects + carried + more
    copy = bus_headers.copy_headers(headers, QUEUE, count, continues=continues)
    assert bus_headers.retry_count(copy, QUEUE) == count
    assert copy["k"] == "v"
    assert ("x-death" in copy) == continues
    # The broker continues the published count, or starts at zero.
    known = rejects if continues else 0
    after = {**copy, "x-death": [death(QUEUE, "rejected", known + 1)]}
    assert bus_headers.retry_count(after, QUEUE) == count + 1


@given(count=st.integers(0, 20), rejects=st.integers(0, 20), continues=st.booleans())
def test_redrive_continues_the_count_or_starts_at_zero(
    count: int, rejects: int, continues: bool
) -> None:
    dead = bus_headers.dead_letter_headers(
        {"x-death": [death(QUEUE, "rejected", rejects)]}, QUEUE, rejects + count, 500, "E: e", 0
    )
    dead["x-retry-count"] = rejects + count  # as the topic topology sets it
    again = bus_headers.redrive_headers(dead, QUEUE, continues=continues)
    assert bus_headers.retry_count(again, QUEUE) == rejects + count
    assert not [name for name in again if name.startswith(("x-final-", "x-original-"))]
    assert again["x-redrive-count"] == 1
    fresh = bus_headers.redrive_headers(dead, QUEUE, continues=continues, reset=True)
    assert bus_headers.retry_count(fresh, QUEUE) == 0
    if rejects:
        assert fresh["x-death-history"], "the history is kept, and not counted"


def test_which_brokers_continue_published_deaths() -> None:
    leveret = {"product": "RabbitMQ", "version": "4.3.0", "platform": "Leveret 0.1 on Python"}
    assert bus_headers.continues_deaths(leveret)
    assert bus_headers.continues_deaths({"product": "LavinMQ", "version": "2.1"})
    assert bus_headers.continues_deaths({"product": "RabbitMQ", "version": "3.13.7"})
    assert not bus_headers.continues_deaths({"product": "RabbitMQ", "version": "4.1.0"})


@given(st.integers(0, 1_000_000_000))
def test_any_wait_is_made_of_few_steps_and_never_too_long(wait_ms: int) -> None:
    steps: list[int] = []
    while step_ms := wait_step_ms(wait_ms - sum(steps)):
        steps.append(step_ms)
    assert 0 <= wait_ms - sum(steps) < 1000
    assert len(steps) <= 20


def due(headers: dict[str, Any], timestamp_s: int | None = None) -> float | None:
    return Delivery("q", b"", "m", headers=headers, timestamp_s=timestamp_s).due_s


def test_a_delay_counts_from_the_publish() -> None:
    assert due({}) is None
    assert due({"processAfterDelayMs": 50}) is None, "nobody knows when it was published"
    assert due({"processAfterDelayMs": 50}, 7) == 8.049, "a second may be almost over"
    assert due({"processAfterDelayMs": "50", "x-published-ms": 7_100}, 7) == 7.15
    assert due({"processAfterDelayMs": -5, "x-published-ms": 7_100}) is None


def test_jitter_makes_a_delay_longer_and_needs_a_copy() -> None:
    exact = RetryPolicy(3, (5.0,))
    spread = RetryPolicy.exponential(3, 5.0, 20.0, jitter=0.5)
    failed = HandlerResult(RETRY, 500)
    assert decide(failed, 0, FANOUT, exact, 1.0).action is Action.REJECT
    assert decide(failed, 0, FANOUT, spread, 1.0) == Decision(Action.DELAY, 5_000, jitter_ms=2_500)
    assert decide(failed, 2, FANOUT, spread, 1.0) == Decision(
        Action.DELAY, 20_000, jitter_ms=10_000
    )
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="jitter"):
            RetryPolicy(3, (5.0,), wrong)


def test_a_retry_is_due_at_its_time_and_not_before_its_delay() -> None:
    assert due({"x-retry-at-ms": 9_500}) == 9.5
    assert due({"x-retry-at-ms": "soon"}) is None
    both = {"x-retry-at-ms": 9_500, "processAfterDelayMs": 50, "x-published-ms": 9_600}
    assert due(both) == 9.65
