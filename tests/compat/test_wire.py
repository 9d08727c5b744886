"""The test client's own codec: what it writes it reads back, with the types it was given."""

import pytest

from tests.compat import wire
from tests.compat.wire import METHODS, Typed


@pytest.mark.parametrize("name", METHODS)
def test_every_method_with_every_bit_set_reads_back(name: str) -> None:
    values: dict[str, object] = {
        "octet": 7,
        "short": 300,
        "long": 70_000,
        "longlong": 2**40,
        "shortstr": "s",
        "longstr": b"long",
        "table": {"k": Typed("I", 5)},
        "bit": True,
    }
    fields = {field: values[kind] for field, kind in METHODS[name].fields}
    assert wire.read_method(wire.method(name, fields)) == (name, fields)


def test_bits_share_a_byte_in_the_order_of_the_fields() -> None:
    payload = wire.method("queue.declare", {"durable": True, "nowait": True})
    assert payload == b"\x00\x32\x00\x0a\x00\x00\x00\x12\x00\x00\x00\x00"


def test_field_without_a_place_in_the_method_is_a_mistake_of_the_test() -> None:
    with pytest.raises(TypeError, match="nope"):
        wire.method("tx.select", {"nope": 1})


def test_plain_values_are_given_tags_and_pairs_keep_theirs() -> None:
    given: dict[str, object] = {
        "a": 1,
        "b": 2**40,
        "c": ("s", 3),
        "d": [True, None, {"e": 1.5}],
        "f": b"x",
    }
    read = wire.Reader(wire.table(given)).table()
    assert {key: item.tag for key, item in read.items()} == {
        "a": "I",
        "b": "l",
        "c": "s",
        "d": "A",
        "f": "x",
    }
    assert wire.plain(read) == {**given, "c": 3}


def test_content_header_keeps_size_and_properties() -> None:
    properties: dict[str, object] = {"content_type": "t", "priority": 3, "timestamp": 2**63}
    assert wire.read_header(wire.header(2**40, properties)) == (2**40, properties)
