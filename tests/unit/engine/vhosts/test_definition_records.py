"""Definitions in the log: one table each, with the arguments as the client sent them."""

import pytest

from leveret.engine.broker import Broker
from leveret.engine.vhosts.definition_records import (
    encode_binding,
    encode_exchange,
    encode_queue,
)
from leveret.wire.tables import Field, Table, decode_table, encode_table, field_of

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
