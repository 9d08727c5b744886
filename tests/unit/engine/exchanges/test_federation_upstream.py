"""Exchanges of type x-federation-upstream: which messages they pass on."""

import pytest

from leveret.engine.exchanges.exchange import Exchange
from leveret.errors import PreconditionFailedError
from tests.unit.engine.exchanges.stage import bind, exchange, matched, queues


def upstream(hops: int) -> Exchange:
    source = exchange(
        "x-federation-upstream",
        {"x-max-hops": hops, "x-downstream-name": "down", "x-downstream-vhost": "v"},
    )
    for queue in queues(2):
        bind(source, queue)
    return source


def came_by(*links: tuple[str, str]) -> dict[str, object]:
    return {"x-received-from": [{"cluster-name": name, "vhost": vhost} for name, vhost in links]}


def test_message_that_came_by_no_link_goes_to_every_binding() -> None:
    assert matched(upstream(1)) == ["q0", "q1"]
    assert matched(upstream(1), "k", {"x-received-from": "made up by a client"}) == ["q0", "q1"]


def test_message_stops_after_the_greatest_number_of_hops() -> None:
    assert matched(upstream(2), "", came_by(("a", "/"))) == ["q0", "q1"]
    assert matched(upstream(2), "", came_by(("a", "/"), ("b", "/"))) == []


def test_message_does_not_return_to_a_broker_where_it_has_been() -> None:
    assert matched(upstream(9), "", came_by(("a", "/"), ("down", "v"))) == []
    assert matched(upstream(9), "", came_by(("down", "other"))) == ["q0", "q1"]


@pytest.mark.parametrize(
    ("arguments", "text"), [({}, "missing"), ({"x-max-hops": "1"}, "must be of type long")]
)
def test_number_of_hops_is_required(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(PreconditionFailedError, match=f"Argument x-max-hops {text}"):
        exchange("x-federation-upstream", arguments)
