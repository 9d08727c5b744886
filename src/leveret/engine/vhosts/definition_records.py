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

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.wire.scan import BOOL, LONG, LONGSTR, SIGNED_INT, TABLE
from leveret.wire.tables import Table, encode_table, field_of

_LENGTH_BYTES: Final = 4  # of the size before the entries of a table
_INT_LIMIT: Final = 1 << 31  # numbers from here on take eight bytes
_NO_ARGUMENTS: Final = bytes(_LENGTH_BYTES)


def encode_last_id(number: int) -> bytes:
    return _encode({"op": "id", "id": number})


def encode_vhost(vhost: str) -> bytes:
    return _encode({"op": "vhost", "vhost": vhost})


def encode_vhost_deletion(vhost: str) -> bytes:
    return _encode({"op": "vhost-", "vhost": vhost})


def encode_exchange(vhost: str, exchange: Exchange, holding: int) -> bytes:
    entries = _Entries("exchange", vhost)
    entries.text("name", exchange.name)
    entries.text("type", exchange.kind)
    entries.flag("auto_delete", exchange.auto_delete)
    entries.flag("internal", exchange.internal)
    entries.number("id", holding)
    if exchange.deduplication_id != 0:
        entries.number("deduplication", exchange.deduplication_id)
    return entries.table(exchange.packed_arguments)


def encode_exchange_deletion(vhost: str, name: str) -> bytes:
    return _encode({"op": "exchange-", "vhost": vhost, "name": name})


def encode_queue(queue: Queue) -> bytes:
    entries = _Entries("queue", queue.vhost)
    entries.text("name", queue.name)
    entries.number("id", queue.ledger.id)
    entries.flag("auto_delete", queue.auto_delete)
    return entries.table(queue.packed_arguments)


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
    entries = _Entries(op, vhost)
    entries.text("source", binding.source)
    entries.text("target", binding.target.name)
    entries.flag("to_queue", binding.is_queue)
    entries.text("routing_key", binding.routing_key)
    return entries.table(binding.packed_arguments)


class _Entries:
    """The entries of a table, which are written without making its fields.

    The definitions of a whole broker, a million perhaps, are encoded in one step of the leader of a
    cluster. Arguments are not decoded for that.
    """

    def __init__(self, op: str, vhost: str) -> None:
        self._writer = BytesWriter()
        self.text("op", op)
        self.text("vhost", vhost)

    def text(self, name: str, value: str) -> None:
        data = value.encode("utf-8", "surrogateescape")
        self._write_name(name, LONGSTR)
        write_i32_be(self._writer, i32(len(data)))
        self._writer.write(data)

    def flag(self, name: str, value: bool) -> None:
        self._write_name(name, BOOL)
        self._writer.append(1 if value else 0)

    def number(self, name: str, value: i64) -> None:
        if -_INT_LIMIT <= value < _INT_LIMIT:
            self._write_name(name, SIGNED_INT)
            write_i32_be(self._writer, i32(value))
        else:
            self._write_name(name, LONG)
            write_i64_be(self._writer, value)

    def table(self, packed_arguments: bytes) -> bytes:
        """Return the table. It ends with the arguments."""
        self._write_name("arguments", TABLE)
        self._writer.write(packed_arguments or _NO_ARGUMENTS)
        entries = self._writer.getvalue()
        return len(entries).to_bytes(_LENGTH_BYTES, "big") + entries

    def _write_name(self, name: str, kind: int) -> None:
        encoded = name.encode()
        self._writer.append(u8(len(encoded)))
        self._writer.write(encoded)
        self._writer.append(u8(kind))


def _encode(values: dict[str, object]) -> bytes:
    table: Table = {name: field_of(value) for name, value in values.items()}
    return encode_table(table)
