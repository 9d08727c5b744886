"""`leveret bus asyncapi` describes the events of a service."""

from __future__ import annotations

import json
from dataclasses import make_dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from leveret.bus import Bus, fanout
from leveret.cli.bus.asyncapi import document
from leveret.errors import ConfigError
from tests.bus.stage import pytestmark_bus

pytestmark = pytestmark_bus[1:]
APP = "tests.bus.apps.described"


def resolve(whole: Any, reference: str) -> Any:
    """Return what a JSON pointer of the document leads to."""
    found = whole
    for word in reference.removeprefix("#/").split("/"):
        found = found[word.replace("~1", "/").replace("~0", "~")]
    return found


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [each for inner in value.values() for each in references(inner)]
    return [each for inner in value for each in references(inner)] if type(value) is list else []


def test_events_of_a_service_are_described() -> None:
    found = json.loads(document(f"{APP}:bus"))
    assert (found["asyncapi"], found["info"]["title"]) == ("3.0.0", "shop-billing")
    for reference in references(found):
        resolve(found, reference)
    handle, publish = found["channels"]["handle"], found["channels"]["publish"]
    assert handle["address"] == "shop.queue.shop-billing"
    assert set(handle["messages"]) == {"OrderPlaced", "OrderShipped"}
    exchange = publish["bindings"]["amqp"]["exchange"]
    assert exchange == {"name": "shop.main-exchange", "type": "fanout", "durable": True}
    assert set(publish["messages"]) == {"shop/order-paid", "OrderShipped"}
    assert found["operations"]["handle"]["action"] == "receive"
    messages, schemas = found["components"]["messages"], found["components"]["schemas"]
    assert messages["OrderPlaced"]["summary"] == "A customer has ordered."
    placed = resolve(found, messages["OrderPlaced"]["payload"]["$ref"])
    assert placed["required"] == ["order_id", "items"]
    assert schemas["Item"]["properties"]["count"]["default"] == 1
    assert "street" in schemas["Address"]["properties"]


def test_classes_of_the_same_name_and_odd_names_have_schemas_of_their_own() -> None:
    """A class name is no unique name, and is no part of a JSON pointer as it is."""

    def made(module: str, field: str, event_name: str) -> type:
        namespace = {"event_name": event_name}
        found = make_dataclass("Placed", [(field, int)], namespace=namespace)
        found.__module__ = module
        return found

    def model(name: str, field: str, event_name: str) -> type:
        part = pydantic.create_model("Part", **{field: (int, ...)})  # type: ignore[call-overload]
        found = pydantic.create_model(name, part=(part, ...))
        found.event_name = event_name  # type: ignore[attr-defined]
        return found

    events = {
        "a": made("shop", "in_a", "a"),
        "b/~{x}": made("store", "in_b", "b/~{x}"),
        "c/~{x}": model("Placed", "in_c", "c/~{x}"),
        "d": model("Other", "in_d", "d"),
        "e": msgspec.defstruct("e/~{0} é", [("in_e", int)], namespace={"event_name": "e"}),
    }
    bus = Bus("amqp://nowhere/", fanout.layout("a-b"), publishes=list(events.values()))
    found = json.loads(json.dumps(bus.asyncapi()))
    for reference in references(found):
        resolve(found, reference)
    for name, message in found["components"]["messages"].items():
        schema = resolve(found, message["payload"]["$ref"])
        if part := schema["properties"].get("part"):
            schema = resolve(found, part["$ref"])
        assert set(schema["properties"]) == {f"in_{name[0]}"}
    assert set(found["components"]["messages"]) == set(events)


def test_a_service_that_publishes_to_a_queue() -> None:
    found = json.loads(document(f"{APP}:queue"))
    assert set(found["channels"]) == {"publish"}
    assert found["channels"]["publish"]["address"] == "billing.events"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("tests", "must have the form"),
        ("tests.no.such:bus", "cannot be imported"),
        (f"{APP}:missing", "no Bus"),
        (f"{APP}:number", "no Bus"),
    ],
)
def test_a_wrong_name_is_one_sentence(target: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        document(target)


def test_only_events_can_be_published() -> None:
    with pytest.raises(TypeError, match="is not an event class"):
        Bus("amqp://nowhere/", fanout.layout("a-b"), publishes=[int])
