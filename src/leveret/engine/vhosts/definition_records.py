"""Definitions as the log keeps them: one table for each object that is made or deleted.

    op           other entries
    vhost        vhost
    vhost-       vhost: deleted with everything in it
    id           id: the last one given to a queue; smaller ones are never given again
    exchange     vhost, name, type, auto_delete, internal, arguments,
                 id (of the queue of a delayed exchange), deduplication (id of its known keys)
    exchange-    vhost, name
    queue        vhost, name, id, auto_delete, arguments
    queue-       vhost, name
    bind, bind-  vhost, source, target, to_queue, routing_key, arguments
    entry        kind, key, value: of the node's register
    entry-       kind, key

Only durable objects are kept. A binding is durable if both its ends are. The tables of a vhost, in
the order in which they were written, build it again (`leveret.engine.restore`).
"""

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.wire.tables import Field, Table, encode_table, field_of

_TABLE = ord("F")


def encode_last_id(number: int) -> bytes:
    return _encode({"op": "id", "id": number}, None)


def encode_vhost(vhost: str) -> bytes:
    return _encode({"op": "vhost", "vhost": vhost}, None)


def encode_vhost_deletion(vhost: str) -> bytes:
    return _encode({"op": "vhost-", "vhost": vhost}, None)


def encode_exchange(vhost: str, exchange: Exchange, holding: int) -> bytes:
    values: dict[str, object] = {
        "op": "exchange",
        "vhost": vhost,
        "name": exchange.name,
        "type": exchange.kind,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "id": holding,
    }
    if exchange.deduplication_id != 0:
        values["deduplication"] = int(exchange.deduplication_id)
    return _encode(values, exchange.arguments)


def encode_exchange_deletion(vhost: str, name: str) -> bytes:
    return _encode({"op": "exchange-", "vhost": vhost, "name": name}, None)


def encode_queue(queue: Queue) -> bytes:
    values: dict[str, object] = {
        "op": "queue",
        "vhost": queue.vhost,
        "name": queue.name,
        "id": int(queue.ledger.id),
        "auto_delete": queue.auto_delete,
    }
    return _encode(values, queue.arguments)


def encode_queue_deletion(queue: Queue) -> bytes:
    values: dict[str, object] = {"op": "queue-", "vhost": queue.vhost, "name": queue.name}
    values["id"] = int(queue.ledger.id)
    return _encode(values, None)


def encode_binding(vhost: str, binding: Binding) -> bytes:
    return _binding("bind", vhost, binding)


def encode_binding_deletion(vhost: str, binding: Binding) -> bytes:
    return _binding("bind-", vhost, binding)


def encode_entry(kind: str, key: str, value: str) -> bytes:
    return _encode({"op": "entry", "kind": kind, "key": key, "value": value}, None)


def encode_entry_deletion(kind: str, key: str) -> bytes:
    return _encode({"op": "entry-", "kind": kind, "key": key}, None)


def _binding(op: str, vhost: str, binding: Binding) -> bytes:
    values: dict[str, object] = {
        "op": op,
        "vhost": vhost,
        "source": binding.source,
        "target": binding.target.name,
        "to_queue": binding.is_queue,
        "routing_key": binding.routing_key,
    }
    return _encode(values, binding.arguments)


def _encode(values: dict[str, object], arguments: Table | None) -> bytes:
    table: Table = {name: field_of(value) for name, value in values.items()}
    if arguments is not None:
        table["arguments"] = Field(_TABLE, arguments)
    return encode_table(table)
