"""Vhosts are made and deleted, with everything in them."""

import pytest

from leveret.engine.broker import Broker
from leveret.engine.vhosts.vhost_deletion import SLICE
from leveret.errors import NotFoundError
from leveret.wire.tables import table_of
from tests.unit.engine.front import Client


def filled(broker: Broker, name: str) -> None:
    vhost = broker.make_vhost(name)
    vhost.declare_queue("q", durable=True, arguments={})
    vhost.declare_queue("s", durable=True, arguments=table_of({"x-queue-type": "stream"}))
    remembering = table_of({"x-deduplication": {}, "x-delayed-type": "fanout"})
    vhost.declare_exchange("x", "x-delayed-message", durable=True, arguments=remembering)
    vhost.bind("x", vhost.queues["q"], "", {})


def test_making_a_vhost_again_gives_the_same() -> None:
    broker = Broker(1)
    assert broker.make_vhost("v") is broker.make_vhost("v")
    assert sorted(broker.vhosts) == ["/", "v"]


def test_a_deleted_vhost_is_gone_and_leaves_nothing() -> None:
    client = Client()
    broker = client.stage.broker
    slots = len([queue for queue in broker.slots.queues if queue is not None])
    filled(broker, "v")
    broker.delete_vhost("v")
    assert sorted(broker.vhosts) == sorted(broker.enforcers) == ["/"]
    with pytest.raises(NotFoundError, match="vhost v not found"):
        broker.vhost("v")
    client.advance(0)
    assert len([queue for queue in broker.slots.queues if queue is not None]) == slots


def test_a_vhost_that_does_not_exist_cannot_be_deleted() -> None:
    with pytest.raises(NotFoundError):
        Broker(1).delete_vhost("v")


def test_a_vhost_that_is_made_again_is_empty_and_not_touched_by_the_deletion() -> None:
    client = Client()
    broker = client.stage.broker
    filled(broker, "v")
    broker.delete_vhost("v")
    filled(broker, "v")
    made = broker.vhost("v")
    client.advance(0)
    assert sorted(made.queues) == ["q", "s"]
    assert not made.queues["q"].deleted


def test_many_queues_are_closed_in_slices() -> None:
    client = Client()
    broker = client.stage.broker
    vhost = broker.make_vhost("v")
    queues = [
        vhost.declare_queue(f"q{number}", durable=True, arguments={}) for number in range(3 * SLICE)
    ]
    broker.delete_vhost("v")
    broker.on_pulse(client.stage.now_ms)
    assert len([queue for queue in queues if queue.deleted]) == SLICE
    client.advance(0)
    assert all(queue.deleted for queue in queues)


def test_a_default_kind_is_taken_where_a_declaration_names_none_and_it_fits() -> None:
    vhost = Broker(1).vhost("/")
    vhost.default_kind = "quorum"
    durable = vhost.declare_queue("durable", durable=True, arguments={})
    assert durable.settings.kind == "quorum"
    assert durable.arguments["x-queue-type"].value == "quorum"
    assert vhost.declare_queue("durable", durable=True, arguments={}) is durable
    assert vhost.declare_queue("short", durable=False, arguments={}).settings.kind == "classic"
    assert (
        vhost.declare_queue("auto", durable=True, auto_delete=True, arguments={}).settings.kind
        == "classic"
    )
    named = table_of({"x-queue-type": "classic"})
    assert vhost.declare_queue("named", durable=True, arguments=named).settings.kind == "classic"
