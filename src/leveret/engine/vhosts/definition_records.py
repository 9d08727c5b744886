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

from typing import Final

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.wire.tables import Table, encode_table, field_of

_LENGTH_BYTES: Final = 4  # size of the length field before the entries of a table
_ARGUMENTS: Final = b"\x09argumentsF"  # name and kind of the entry that holds a table
_NO_ARGUMENTS: Final = bytes(_LENGTH_BYTES)


def encode_last_id(number: int) -> bytes:
    return _encode({"op": "id", "id": number})


def encode_vhost(vhost: str) -> bytes:
    return _encode({"op": "vhost", "vhost": vhost})


def encode_vhost_deletion(vhost: str) -> bytes:
    return _encode({"op": "vhost-", "vhost": vhost})


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
    return _with_arguments(values, exchange.packed_arguments)


def encode_exchange_deletion(vhost: str, name: str) -> bytes:
    return _encode({"op": "exchange-", "vhost": vhost, "name": name})


def encode_queue(queue: Queue) -> bytes:
    values: dict[str, object] = {
        "op": "queue",
        "vhost": queue.vhost,
        "name": queue.name,
        "id": int(queue.ledger.id),
        "auto_delete": queue.auto_delete,
    }
    return _with_arguments(values, queue.packed_arguments)


def encode_queue_deletion(queue: Queue) -> bytes:
    values: dict[str, object] = {"op": "queue-", "vhost": queue.vhost, "name": queue.name}
    values["id"] = int(queue.ledger.id)
    return _encode(values)


def encode_binding(vhost: str, binding: Binding) -> bytes:
    return _binding("bind", vhost, binding)


def encode_binding_deletion(vhost: str, binding: Binding) -> bytes:
    return _binding("bind-", vhost, binding)


def encode_entry(kind: str, key: str, value: str) -> bytes:
    return _encode({"op": "entry", "kind": kind, "key": key, "value": value})


def encode_entry_deletion(kind: str, key: str) -> bytes:
    return _encode({"op": "entry-", "kind": kind, "key": key})


def _binding(op: str, vhost: str, binding: Binding) -> bytes:
    values: dict[str, object] = {
        "op": op,
        "vhost": vhost,
        "source": binding.source,
        "target": binding.target.name,
        "to_queue": binding.is_queue,
        "routing_key": binding.routing_key,
    }
    return _with_arguments(values, binding.packed_arguments)


def _with_arguments(values: dict[str, object], packed: bytes) -> bytes:
    """Return a table that ends with arguments, which are not decoded for that.

    The state of a whole broker is encoded in one step of the leader of a cluster.
    """
    entries = _encode(values)[_LENGTH_BYTES:] + _ARGUMENTS + (packed or _NO_ARGUMENTS)
    return len(entries).to_bytes(_LENGTH_BYTES, "big") + entries


def _encode(values: dict[str, object]) -> bytes:
    table: Table = {name: field_of(value) for name, value in values.items()}
    return encode_table(table)
