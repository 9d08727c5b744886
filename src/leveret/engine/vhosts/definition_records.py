"""Definitions as the log keeps them: a table for each exchange, queue and binding made or undone.

    op           other entries
    vhost        vhost
    vhost-       vhost: gone with all that is in it
    id           id: the last one given to a queue; none before it is given again
    exchange     vhost, name, type, auto_delete, internal, arguments, id (of what it holds back),
                 deduplication (id of what it remembers)
    exchange-    vhost, name
    queue        vhost, name, id, auto_delete, arguments
    queue-       vhost, name
    bind, bind-  vhost, source, target, to_queue, routing_key, arguments
    entry        kind, key, value: of the node's register
    entry-       kind, key

Only what is durable is kept; a binding is if both its ends are. The tables of a vhost, in order of
their making, build it anew (`apply`).
"""

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.wire.tables import Field, Table, encode_table, field_of

_TABLE = ord("F")


def last_id(number: int) -> bytes:
    return _encode({"op": "id", "id": number}, None)


def vhost_made(vhost: str) -> bytes:
    return _encode({"op": "vhost", "vhost": vhost}, None)


def vhost_gone(vhost: str) -> bytes:
    return _encode({"op": "vhost-", "vhost": vhost}, None)


def exchange_made(vhost: str, exchange: Exchange, holding: int) -> bytes:
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


def exchange_gone(vhost: str, name: str) -> bytes:
    return _encode({"op": "exchange-", "vhost": vhost, "name": name}, None)


def queue_made(queue: Queue) -> bytes:
    values: dict[str, object] = {
        "op": "queue",
        "vhost": queue.vhost,
        "name": queue.name,
        "id": int(queue.ledger.id),
        "auto_delete": queue.auto_delete,
    }
    return _encode(values, queue.arguments)


def queue_gone(queue: Queue) -> bytes:
    values: dict[str, object] = {"op": "queue-", "vhost": queue.vhost, "name": queue.name}
    values["id"] = int(queue.ledger.id)
    return _encode(values, None)


def binding_made(vhost: str, binding: Binding) -> bytes:
    return _binding("bind", vhost, binding)


def binding_gone(vhost: str, binding: Binding) -> bytes:
    return _binding("bind-", vhost, binding)


def entry_made(kind: str, key: str, value: str) -> bytes:
    return _encode({"op": "entry", "kind": kind, "key": key, "value": value}, None)


def entry_gone(kind: str, key: str) -> bytes:
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
