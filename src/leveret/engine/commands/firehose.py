"""The firehose: a copy of every message that passes a traced vhost, at `amq.rabbitmq.trace`.

Routing keys are `publish.<exchange>` and `deliver.<queue>`. The body is that of the message; its
address and properties are headers. A vhost is traced while its flag is set (`Vhost.set_tracing`).
Its routes are not cached then, so that every publish comes by, and sessions show the messages that
they are about to send. While no vhost is traced, this costs one look at a flag for each session and
turn, and nothing for a publish.

Messages of the trace exchange itself are not traced again.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.commands.content import Content
from leveret.engine.commands.publishing import route_and_push
from leveret.engine.exchanges.registry import TRACE
from leveret.engine.message import ADDRESS_NAME_BYTES_MAX, REDELIVERED, Address, Message
from leveret.engine.queues.slots import Slots
from leveret.engine.turns.turn import OutletBase, Tracer, Turn
from leveret.engine.vhosts.vhost import Vhost
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import Field, Table, field_of, table_of

_TABLE: Final = ord("F")
_ARRAY: Final = ord("A")
_TIMESTAMP: Final = ord("T")
_LONGSTR: Final = ord("S")
_INT: Final = ord("I")


class Firehose(Tracer):
    """Publishes the copies."""

    def __init__(self, vhosts: dict[str, Vhost], slots: Slots, turn: Turn) -> None:
        self._vhosts = vhosts
        self._slots = slots
        self._turn = turn

    def on_publish(
        self, vhost: str, address: Address, header: bytes, body: bytes, queues: list[str]
    ) -> None:
        facts = self._message_facts(vhost, address, header)
        outlet = self._turn.outlet
        if outlet is not None:
            facts["connection"] = field_of(outlet.name)
            facts["user"] = field_of(outlet.user_name)
        facts["routed_queues"] = _texts(queues)
        self._publish(vhost, f"publish.{address.exchange}", facts, address, body)

    def on_deliveries(self, outlet: OutletBase, channel: i64, messages: list[Message]) -> None:
        for message in messages:
            slot = message.queue
            queue = self._slots.queues[slot] if slot >= 0 else None
            if queue is None:
                continue
            vhost = self._vhosts.get(queue.vhost)
            if vhost is None or not vhost.tracing:
                continue
            facts = self._message_facts(queue.vhost, message.address, message.header)
            facts["redelivered"] = Field(_INT, 1 if message.flags & REDELIVERED else 0)
            facts["connection"] = field_of(outlet.name)
            facts["user"] = field_of(outlet.user_name)
            facts["channel"] = Field(_INT, int(channel))
            key = f"deliver.{queue.name}"
            self._publish(queue.vhost, key, facts, message.address, message.body)

    def _message_facts(self, vhost: str, address: Address, header: bytes) -> Table:
        return {
            "exchange_name": field_of(address.exchange),
            "routing_keys": _texts(address.keys[: address.shown]),
            "properties": Field(_TABLE, _properties(decode_properties(header))),
            "node": field_of(self._turn.node_name),
            "vhost": field_of(vhost),
        }

    def _publish(self, name: str, key: str, facts: Table, address: Address, body: bytes) -> None:
        vhost = self._vhosts[name]
        exchange = vhost.exchanges.get(TRACE)
        if exchange is None or not exchange.bindings or address.exchange == TRACE:
            return
        properties = Properties()
        properties.headers = facts
        content = Content(encode_header(properties, len(body)))
        route_and_push(vhost, exchange, Address(TRACE, _cut(key)), content, body)


def _cut(key: str) -> str:
    """Return a routing key cut to at most 255 bytes."""
    data = key.encode("utf-8", "surrogateescape")
    if len(data) <= ADDRESS_NAME_BYTES_MAX:
        return key
    return data[:ADDRESS_NAME_BYTES_MAX].decode("utf-8", "ignore")


def _texts(texts: list[str]) -> Field:
    return Field(_ARRAY, [Field(_LONGSTR, text) for text in texts])


def _properties(properties: Properties) -> Table:
    """Return the properties that are set, as a table."""
    values = properties.values_by_name()
    if properties.timestamp is not None:
        values["timestamp"] = Field(_TIMESTAMP, properties.timestamp)  # 64 bits unsigned
    table = table_of(values)
    if properties.headers is not None:
        table["headers"] = Field(_TABLE, properties.headers)
    return table
