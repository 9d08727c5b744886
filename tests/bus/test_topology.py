"""Both topologies, name for name and argument for argument; retry policies."""

from __future__ import annotations

import pytest

from leveret.bus import QueueType, RetryPolicy, Topology, fanout, topic
from leveret.bus.retry_policy import Backoff
from leveret.bus.topology import Binding, Exchange, ExchangeType, Queue

pytestmark = pytest.mark.compiled_only("the library is the same in both forms")


@pytest.mark.parametrize(
    ("service", "prefix"),
    [
        ("wms-cincout", "wms"),
        ("xyz-service", "xyz"),
        ("noprefix", "default"),
        ("a-b-c", "a"),
        ("-odd", "default"),
    ],
)
def test_the_prefix_is_the_part_before_the_first_hyphen(service: str, prefix: str) -> None:
    assert fanout.prefix_of(service) == prefix
    assert fanout.layout(service).exchange == f"{prefix}.main-exchange"


def test_fanout_topology_names_and_arguments() -> None:
    layout = fanout.layout("wms-orders")
    assert layout.consuming == Topology(
        exchanges=(
            Exchange("wms.main-exchange", ExchangeType.FANOUT),
            Exchange("wms.retry-exchange.wms-orders", ExchangeType.DIRECT),
        ),
        queues=(
            Queue(
                "wms.queue.wms-orders",
                {
                    "x-dead-letter-exchange": "wms.retry-exchange.wms-orders",
                    "x-dead-letter-routing-key": "retry",
                },
            ),
            Queue(
                "wms.retry-queue.wms-orders",
                {
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": "wms.queue.wms-orders",
                    "x-message-ttl": 5_000,
                },
            ),
            Queue("wms.dlq.wms-orders"),
        ),
        bindings=(
            Binding("wms.main-exchange", "wms.queue.wms-orders"),
            Binding("wms.retry-exchange.wms-orders", "wms.retry-queue.wms-orders", "retry"),
        ),
    )
    assert layout.publishing == Topology((Exchange("wms.main-exchange", ExchangeType.FANOUT),))
    assert (layout.retries_max, layout.retry_delay_s, layout.mandatory) == (10, 5.0, False)


def test_topic_topology_names_and_arguments() -> None:
    layout = topic.layout("svc.events", exchange="events", routing_keys=("order.*", "stock.#"))
    quorum = {"x-queue-type": "quorum"}
    assert layout.consuming == Topology(
        exchanges=(
            Exchange("events", ExchangeType.TOPIC),
            Exchange("svc.events.dlq", ExchangeType.FANOUT),
        ),
        queues=(
            Queue(
                "svc.events",
                {
                    **quorum,
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": "svc.events.retry",
                },
            ),
            Queue(
                "svc.events.retry",
                {
                    **quorum,
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": "svc.events",
                    "x-message-ttl": 5_000,
                },
            ),
            Queue("svc.events.dlq", quorum),
        ),
        bindings=(
            Binding("events", "svc.events", "order.*"),
            Binding("events", "svc.events", "stock.#"),
            Binding("svc.events.dlq", "svc.events.dlq"),
        ),
    )
    assert layout.mandatory and layout.permanent_to_dlq


def test_classic_queue_has_no_type_argument() -> None:
    layout = topic.layout("q", queue_type=QueueType.CLASSIC)
    assert all("x-queue-type" not in queue.arguments for queue in layout.consuming.queues)


def test_each_further_delay_has_a_queue() -> None:
    before = fanout.layout("wms-orders")
    after = before.with_delays((5_000, 60_000, 1_000, 60_000))
    assert after.consuming.queues[:3] == before.consuming.queues
    assert [queue.name for queue in after.consuming.queues[3:]] == [
        "wms.retry-queue.wms-orders.1000ms",
        "wms.retry-queue.wms-orders.60000ms",
    ]
    assert after.consuming.queues[3].arguments["x-message-ttl"] == 1_000
    assert after.consuming.queues[3].arguments["x-dead-letter-routing-key"] == before.queue
    assert after.step(5_000) is None
    step = after.step(60_000)
    assert step is not None and step.queue == "wms.retry-queue.wms-orders.60000ms"
    assert after.with_delays((60_000,)) == after


def test_names_that_amqp_cannot_carry_are_refused() -> None:
    with pytest.raises(ValueError, match="255"):
        fanout.layout("wms-" + "x" * 300)
    with pytest.raises(ValueError, match="1 to 255"):
        fanout.layout("")
    with pytest.raises(ValueError, match="or neither"):
        topic.layout("q", exchange="e")


def test_a_policy_takes_its_delays_in_turn_and_keeps_the_last() -> None:
    policy = RetryPolicy(5, (0.01, 0.02))
    assert [policy.delay_s(retries) for retries in range(4)] == [0.01, 0.02, 0.02, 0.02]
    assert RetryPolicy.exponential(9, 0.1, 1.0).delays_s == (0.1, 0.2, 0.4, 0.8, 1.0)
    for retries_max, delays_s in [(-1, (1,)), (1, ()), (1, (0,)), (1, tuple(range(1, 18)))]:
        with pytest.raises(ValueError, match=r"retries_max|delay"):
            RetryPolicy(retries_max, delays_s)


def test_the_wait_before_the_next_attempt_doubles_within_bounds_and_differs(seed: int) -> None:
    from random import Random

    backoff = Backoff(Random(seed), 0.1, 1.0)
    waits = [backoff.next_s() for _ in range(8)]
    for wait_s, bound_s in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=False):
        assert bound_s / 2 <= wait_s <= bound_s
    assert len(set(waits)) > 4
    backoff.reset()
    assert backoff.next_s() <= 0.1
