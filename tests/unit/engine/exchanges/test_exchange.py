"""The base of all exchange types: adding and removing bindings, and the headers of a message."""

import pytest

from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.exchanges.registry import KINDS
from leveret.engine.target import Target
from leveret.errors import FieldSyntaxError
from leveret.wire.properties import Properties
from tests.unit.engine.exchanges.stage import (
    bind,
    binding,
    exchange,
    matched,
    message,
    queues,
    unbind,
)


def every_kind() -> list[Exchange]:
    return [exchange(kind, {"x-delayed-type": "topic", "x-max-hops": 1}) for kind in KINDS]


def key_for(kind: str) -> str:
    return {"x-consistent-hash": "1", "x-local-random": "", "x-super-stream": "0"}.get(kind, "k")


@pytest.mark.parametrize("source", every_kind(), ids=KINDS)
def test_binding_is_added_once_and_removed_once(source: Exchange) -> None:
    queue = Target("q")
    key = key_for(source.kind)
    assert bind(source, queue, key)
    assert not bind(source, queue, key)
    assert matched(source, "k") == ["q"]
    assert unbind(source, queue, key)
    assert not unbind(source, queue, key)
    assert matched(source, "k") == []
    assert source.bindings == {}


@pytest.mark.parametrize("source", every_kind(), ids=KINDS)
def test_removing_a_target_removes_all_its_bindings_and_no_other(source: Exchange) -> None:
    key = key_for(source.kind)
    going, staying = queues(2)
    for number in range(5):
        bind(source, going, key, {"number": number})
        bind(source, staying, key, {"number": number})
    assert source.remove_target(going) == 5
    assert source.remove_target(going) == 0
    assert [kept.target.name for kept in source.bindings.values()] == ["q1"] * 5
    assert source.remove_target(staying) == 5
    assert source.bindings == {}
    assert matched(source, "k") == []


def test_bindings_are_listed_in_order_of_creation() -> None:
    source = exchange("direct")
    first, second = queues(2)
    for key in "abc":
        bind(source, first, key)
        bind(source, second, key)
    unbind(source, first, "b")
    bind(source, first, "b")
    assert [found.routing_key for found in source.bindings_to(first)] == ["a", "c", "b"]
    assert [found.routing_key for found in source.bindings_to(second)] == ["a", "b", "c"]
    assert [found.routing_key for found in source.bindings.values()] == list("aabccb")
    assert source.bindings_to(Target("q0")) == []


@pytest.mark.parametrize("gone", range(3))
def test_list_of_a_targets_bindings_survives_removal_at_any_place(gone: int) -> None:
    source = exchange("direct")
    queue = Target("q")
    keys = ["a", "b", "c"]
    for key in keys:
        bind(source, queue, key)
    unbind(source, queue, keys.pop(gone))
    bind(source, queue, "d")
    assert [found.routing_key for found in source.bindings_to(queue)] == [*keys, "d"]
    assert source.remove_target(queue) == 3


def test_queue_and_exchange_of_one_name_are_different_targets() -> None:
    source = exchange("direct")
    queue = Target("same")
    other = exchange("fanout", name="same")
    assert bind(source, queue, "k")
    assert bind(source, other, "k")
    assert unbind(source, other, "k")
    assert [kept.is_queue for kept in source.bindings.values()] == [True]


def test_removed_bindings_leave_nothing_in_the_lists_by_target() -> None:
    source = exchange("fanout")
    for queue in queues(100):
        bind(source, queue)
    for target in [found.target for found in list(source.bindings.values())]:
        unbind(source, target)
    assert source._newest == {}


def test_binding_knows_its_source() -> None:
    source = exchange("direct", name="here")
    assert binding(source, Target("q")).source == "here"


def test_headers_are_decoded_once() -> None:
    headers = message({"a": 1, "b": "two"})
    table = headers.table()
    assert {name: field.value for name, field in table.items()} == {"a": 1, "b": "two"}
    assert headers.table() is table


def test_message_without_headers_has_an_empty_table() -> None:
    headers = Headers(b"", 0, 0)
    assert headers.field("a") is None
    assert headers.table() == {}
    assert headers.field("a") is None


def test_one_header_is_found_with_and_without_the_table() -> None:
    headers = message({"a": 1, "b": "two"})
    for _ in range(2):
        field = headers.field("b")
        assert field is not None
        assert field.value == "two"
        assert headers.field("c") is None
        headers.table()


def test_broken_headers_raise_a_field_syntax_error() -> None:
    payload = b"\x05ab"
    with pytest.raises(FieldSyntaxError):
        Headers(payload, 0, len(payload)).table()
    with pytest.raises(FieldSyntaxError):
        Headers(payload, 0, len(payload)).field("a")


def test_properties_are_decoded_once() -> None:
    properties = Properties()
    properties.message_id = "m-1"
    headers = message(None, properties)
    assert headers.properties().message_id == "m-1"
    assert headers.properties() is headers.properties()


def test_key_is_split_once() -> None:
    headers = message()
    words = headers.words("a.b..c")
    assert words == ["a", "b", "", "c"]
    assert headers.words("a.b..c") is words
    assert headers.words("d") == ["d"]


def test_empty_key_has_no_word() -> None:
    assert message().words("") == []
    assert message().words(".") == ["", ""]
