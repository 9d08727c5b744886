"""The default exchange."""

import pytest

from leveret.engine.exchanges.default import DefaultExchange
from leveret.engine.target import Target
from leveret.errors import AccessRefusedError
from tests.unit.engine.exchanges.stage import matched


def test_key_is_the_name_of_a_queue() -> None:
    queues = {"a": Target("a"), "b.c": Target("b.c")}
    exchange = DefaultExchange(queues)
    assert matched(exchange, "a") == ["a"]
    assert matched(exchange, "b.c") == ["b.c"]
    assert matched(exchange, "c") == []


def test_queues_are_found_while_they_exist() -> None:
    queues: dict[str, Target] = {}
    exchange = DefaultExchange(queues)
    assert matched(exchange, "q") == []
    queues["q"] = Target("q")
    assert matched(exchange, "q") == ["q"]
    del queues["q"]
    assert matched(exchange, "q") == []


def test_binding_is_refused() -> None:
    with pytest.raises(
        AccessRefusedError, match=r"^operation not permitted on the default exchange$"
    ):
        DefaultExchange({}).check_binding("k", {})


def test_it_is_a_durable_direct_exchange() -> None:
    exchange = DefaultExchange({})
    assert (exchange.name, exchange.kind, exchange.durable) == ("", "direct", True)
