"""A fault while one message is handled is confined to that message.

The message is parked with the reason, the fault is counted, and every other message of the turn
goes on.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leveret.engine import broker as broker_module
from leveret.engine.arguments.policies import Policy
from leveret.wire.tables import table_of
from tests.unit.engine.front import Client, deaths, headers, names

TTL_MS = 1_000
LONG_KEY = "k" * 300
FAULTY = "faulty"


def with_dead_letters(client: Client, **arguments: object) -> None:
    """Declare a queue `q` whose messages expire into `dead`."""
    client.queue("dead")
    client.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **arguments)


def set_long_key(client: Client) -> None:
    """Set a dead-letter key that no routing key can be, as an older version accepted it."""
    definition = table_of(
        {"dead-letter-exchange": "", "dead-letter-routing-key": LONG_KEY, "message-ttl": TTL_MS}
    )
    enforcer = client.stage.broker.enforcers["/"]
    client.stage.broker.begin_turn(client.stage.now_ms)
    policy = Policy("p", lambda name: name == FAULTY, "all", 0, definition)
    enforcer.policies.put(policy, False)
    enforcer.review()
    client.stage.end_turn()
    client.advance(0)


@pytest.mark.parametrize("count", [2**63 - 1, 2**62, -(2**63), -1])
def test_made_up_death_count_starts_again(count: int) -> None:
    client = Client()
    with_dead_letters(client)
    death = {"queue": "q", "reason": "expired", "count": count}
    client.publish("q", "a", expiration="10", headers={"x-death": [death]})
    client.advance(10)
    event = client.get("dead")
    assert deaths(event) == [("q", "expired", 1)]


def test_dead_letter_key_that_no_message_can_have_is_refused() -> None:
    client = Client()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": LONG_KEY}
    events = client.send("queue.declare", queue="q", arguments=arguments)
    assert names(events) == ["channel.close"]
    assert not client.exists("q")


def test_message_that_cannot_be_dead_lettered_is_parked_and_the_others_go_on() -> None:
    client = Client()
    with_dead_letters(client)
    client.queue(FAULTY)
    set_long_key(client)
    client.publish("q", "before", expiration=str(TTL_MS))
    client.publish(FAULTY, "bad")
    client.publish("q", "after", expiration=str(TTL_MS))
    client.advance(TTL_MS)
    assert client.drain("dead") == ["before", "after"]
    event = client.get("leveret.parked")
    assert event is not None and event.body == b"bad"
    assert headers(event)["x-parked-queue"] == FAULTY
    assert "AssertionError" in str(headers(event)["x-parked-reason"])
    turn = client.stage.broker.turn
    assert (turn.fault_count, turn.losses.parked) == (1, 1)


STEPS = ["record_death", "decode_properties", "encode_header", "route_and_push"]


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], None]]:
    """Let the n-th call of a step of the disposal fail, as a failed allocation would."""

    def plant(step: str, number: int) -> None:
        real = getattr(broker_module, step)
        calls = 0

        def planted(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise MemoryError(step)
            return real(*args, **more)

        monkeypatch.setattr(broker_module, step, planted)

    yield plant


@pytest.mark.interpreted_only("compiled code cannot be patched")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_failure_at_any_step_of_the_disposal_loses_no_message(
    step: str, number: int, fail_at: Callable[[str, int], None]
) -> None:
    client = Client()
    with_dead_letters(client)
    for body in "abc":
        client.publish("q", body, expiration=str(TTL_MS))
    fail_at(step, number)
    client.advance(TTL_MS)
    found = client.drain("dead") + client.drain("leveret.parked")
    assert sorted(found) == ["a", "b", "c"]
    assert client.stage.broker.turn.fault_count == 1


@pytest.mark.interpreted_only("compiled code cannot be patched")
def test_message_that_cannot_be_parked_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    with_dead_letters(client)
    client.publish("q", "a", expiration=str(TTL_MS))

    def fail(*_: object, **__: object) -> Any:
        raise MemoryError

    with monkeypatch.context() as planted:
        planted.setattr(broker_module, "route_and_push", fail)
        planted.setattr(broker_module, "ensure_parked_queue", fail)
        client.advance(TTL_MS)
        assert client.stage.broker.vhost("/").queues["q"].stuck == 1
    client.advance(60_000)
    assert client.drain("dead") == ["a"]
