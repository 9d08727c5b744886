"""Definitions in the log: one table each, with the arguments as the client sent them."""

import pytest

from leveret.engine.broker import Broker
from leveret.engine.vhosts.definition_records import (
    encode_binding,
    encode_exchange,
    encode_queue,
)
from leveret.wire.tables import Field, Table, decode_table, encode_table, field_of, table_of

NESTED: Table = {
    "x-max-length": field_of(7),
    "list": Field(ord("A"), [field_of("a"), field_of({"deep": True})]),
    "void": Field(ord("V"), None),
}


@pytest.mark.parametrize("arguments", [{}, NESTED], ids=["none", "nested"])
def test_arguments_are_a_table_in_the_table_of_a_definition(arguments: Table) -> None:
    vhost = Broker(1).vhosts["/"]
    queue = vhost.declare_queue("q", durable=True, arguments=arguments)
    exchange = vhost.declare_exchange("x", "topic", durable=True, arguments=arguments)
    vhost.bind("x", queue, "key", arguments)
    (binding,) = exchange.bindings.values()
    for record in (
        encode_queue(queue),
        encode_exchange("/", exchange, 0),
        encode_binding("/", binding),
    ):
        table = decode_table(record, 4, len(record))
        assert table["arguments"].value == arguments
        assert list(table)[-1] == "arguments"
        assert encode_table(table) == record


def test_numbers_beyond_32_bits_and_names_that_are_not_utf_8_come_back() -> None:
    broker = Broker(1)
    vhost = broker.vhosts["/"]
    queue = vhost.declare_queue("q\udcff", durable=True, arguments={})
    for number in (2**31 - 1, 2**31, 2**62):
        queue.ledger.id = number
        table = decode_table(encode_queue(queue), 4, len(encode_queue(queue)))
        assert encode_table(table) == encode_queue(queue)
        values = {name: field.value for name, field in table.items()}
        assert table_of(values)["id"] == table["id"]
        assert values == {
            "op": "queue",
            "vhost": "/",
            "name": "q\udcff",
            "id": number,
            "auto_delete": False,
            "arguments": {},
        }
