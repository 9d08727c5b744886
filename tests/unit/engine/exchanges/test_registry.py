"""All exchange types by name, and the exchanges that every vhost has from the start."""

import pytest

from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.registry import KINDS, PREDECLARED, make_exchange, predeclared
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import table_of
from tests.unit.engine.exchanges.stage import Arguments, exchange, matched

NEEDED: Arguments = {"x-delayed-type": "direct", "x-max-hops": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_every_known_type_can_be_made(kind: str) -> None:
    arguments = table_of(NEEDED)
    made = make_exchange(kind, "name", True, True, True, arguments, "other")
    assert (made.kind, made.name, made.alternate) == (kind, "name", "other")
    assert made.durable
    assert made.auto_delete
    assert made.internal
    assert made.arguments == arguments
    assert made.is_delayed == (kind == "x-delayed-message")


def test_flags_are_off_unless_asked_for() -> None:
    made = exchange("direct")
    assert not made.durable
    assert not made.auto_delete
    assert not made.internal
    assert made.alternate is None


@pytest.mark.parametrize("kind", ["nope", "", "Direct", "x-recent-history"])
def test_unknown_type_is_refused(kind: str) -> None:
    with pytest.raises(PreconditionFailedError, match=f"^unknown exchange type '{kind}'$"):
        exchange(kind)


def test_route_can_be_cached_if_the_key_alone_decides() -> None:
    kept = [kind for kind in KINDS if exchange(kind, NEEDED).key_only]
    assert kept == [
        "direct",
        "fanout",
        "topic",
        "x-consistent-hash",
        "x-modulus-hash",
        "x-super-stream",
    ]


def made(queues: dict[str, Target]) -> dict[str, Exchange]:
    return {found.name: found for found in predeclared(queues)}


def test_vhost_starts_with_the_exchanges_of_rabbitmq() -> None:
    found = made({})
    assert [(name, found[name].kind) for name in sorted(found)] == sorted(PREDECLARED)
    assert all(exchange.durable for exchange in found.values())
    assert [name for name in found if found[name].internal] == ["amq.rabbitmq.trace"]


def test_default_exchange_sees_the_queues_of_the_vhost() -> None:
    queues = {"q": Target("q")}
    assert matched(made(queues)[""], "q") == ["q"]
