"""Messages that left without an ack are counted by reason, for the queue and for the node."""

from collections.abc import Callable

import pytest

from leveret.engine.turns.loss_counts import LossCounts
from tests.unit.engine.commands.test_dead_letter import REASONS
from tests.unit.engine.front import Client


def losses(client: Client, name: str = "q") -> LossCounts:
    found = client.stage.broker.vhost("/").queues[name].losses
    assert found is not None
    return found


@pytest.mark.parametrize(("kill", "arguments", "reason"), REASONS)
def test_a_dead_letter_is_counted_by_its_reason(
    kill: Callable[[Client], None], arguments: dict[str, object], reason: str
) -> None:
    client = Client()
    client.queue("dead")
    client.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **arguments)
    kill(client)
    node = client.stage.broker.turn.losses
    assert losses(client).dead_lettered == node.dead_lettered
    assert losses(client).dead_lettered[reason] >= 1
    assert node.deaths == {("classic", "at_most_once", reason): node.dead_lettered[reason]}
    assert not node.dropped


DROPS = [(kill, args, reason) for kill, args, reason in REASONS if reason != "delivery_limit"]


@pytest.mark.parametrize(("kill", "arguments", "reason"), DROPS)
def test_what_is_lost_without_a_dead_letter_exchange_is_counted_by_its_reason(
    kill: Callable[[Client], None], arguments: dict[str, object], reason: str
) -> None:
    client = Client()
    client.queue("q", **arguments)
    kill(client)
    node = client.stage.broker.turn.losses
    assert losses(client).dropped == node.dropped
    assert node.dropped[reason] >= 1
    assert node.deaths == {("classic", "disabled", reason): node.dropped[reason]}


def test_a_dead_letter_that_nobody_takes_is_lost_and_counted() -> None:
    client = Client()
    client.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="nowhere")
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.reject(1, requeue=False)
    assert losses(client).dropped == {"dead_letter_unroutable": 1}
    assert not losses(client).dead_lettered


def test_a_dead_letter_that_would_come_back_is_parked_and_counted() -> None:
    client = Client()
    client.queue("q", x_dead_letter_exchange="", x_message_ttl=10)
    client.publish("q", "a")
    client.advance(10)
    node = client.stage.broker.turn.losses
    assert (losses(client).parked, node.parked, node.parked_cycles) == (1, 1, 1)
    assert not node.dropped and not node.dead_lettered


def test_a_dead_letter_that_would_come_back_is_lost_and_counted() -> None:
    client = Client()
    client.stage.broker.parks_cycles = False
    client.queue("q", x_dead_letter_exchange="", x_message_ttl=10)
    client.publish("q", "a")
    client.advance(10)
    assert losses(client).dropped == {"dead_letter_cycle": 1}


def test_a_refused_publish_is_counted() -> None:
    client = Client()
    client.queue("q", x_max_length=0, x_overflow="reject-publish")
    client.publish("q", "a", "b")
    assert losses(client).dropped == {"refused": 2}


def test_a_parked_message_and_a_consumer_that_is_too_slow_are_counted() -> None:
    client = Client()
    client.queue("q", x_delivery_limit=0, x_consumer_timeout=1000)
    client.publish("q", "a")
    client.consume("q")
    client.advance(1000)
    assert (losses(client).timed_out, losses(client).parked) == (1, 1)
    node = client.stage.broker.turn.losses
    assert (node.timed_out, node.parked) == (1, 1)


def test_an_acknowledged_message_is_not_counted_as_lost() -> None:
    client = Client()
    queue = client.queue("q")
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.ack(1)
    assert queue.losses is None
