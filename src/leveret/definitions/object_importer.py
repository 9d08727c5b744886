"""Import the exchanges, queues and bindings of a document of definitions.

A row that passed its check can be declared: the checks call the engine's own checks, on objects
that are thrown away.
"""

from typing import Final

from leveret.definitions.definitions import Definitions
from leveret.definitions.rows import Document, Row, flag, maybe_text, text
from leveret.definitions.vhosts import NAME_BYTES_MAX
from leveret.engine.arguments.packed import require_modest
from leveret.engine.arguments.queue_arguments import (
    exchange_alternate,
    exchange_deduplication,
    queue_settings,
    remembering_stream,
    with_default_kind,
)
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.registry import make_exchange, predeclared
from leveret.engine.exchanges.super_stream import SUPER_STREAM, partition_names
from leveret.engine.target import Target
from leveret.engine.vhosts.names import require_known_kind, without_line_breaks
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Table, encode_table, table_of

RESERVED: Final = "amq."
_QUEUE: Final = "queue"
_EXCHANGE: Final = "exchange"

Name = tuple[str, str]  # vhost and name


class ObjectImporter:
    """Checks and declares the exchanges, queues and bindings of one document."""

    def __init__(self, definitions: Definitions, document: Document) -> None:
        self._definitions = definitions
        self._document = document
        self._queues: set[Name] = set()  # queues of the document that were checked
        self._exchanges: dict[
            Name, Exchange
        ] = {}  # exchanges of the document, used for checks only
        self._given = {exchange.name: exchange for exchange in predeclared({})}
        self._kinds = {text(row, "name"): _default_kind(row) for row in document.rows("vhosts")}

    def check_exchange(self, row: Row) -> None:
        vhost = self._vhost(row)
        name = _object_name(row, "name")
        kind = text(row, "type")
        require_known_kind(kind)
        arguments = _checked_arguments(row)
        internal = flag(row, "internal", False)
        alternate = exchange_alternate(name, vhost, arguments)
        exchange_deduplication(name, vhost, internal, arguments)
        remembering_stream(f"exchange '{name}'", vhost, arguments)
        if kind == SUPER_STREAM:
            self._queues.update((vhost, part) for part in partition_names(name, arguments))
        self._exchanges[vhost, name] = make_exchange(
            kind,
            name,
            durable=flag(row, "durable", True),
            auto_delete=flag(row, "auto_delete", False),
            internal=internal,
            arguments=arguments,
            alternate=alternate,
        )

    def put_exchange(self, row: Row) -> None:
        vhost = self._definitions.broker.vhost(self._vhost(row))
        name = _object_name(row, "name")
        if not name or name.startswith(RESERVED) or name in vhost.exchanges:
            return
        vhost.declare_exchange(
            name,
            text(row, "type"),
            durable=flag(row, "durable", True),
            auto_delete=flag(row, "auto_delete", False),
            internal=flag(row, "internal", False),
            arguments=_arguments(row),
        )

    def check_queue(self, row: Row) -> None:
        vhost = self._vhost(row)
        name = _object_name(row, "name")
        if not name:
            raise PreconditionFailedError("a queue must have a name")
        durable = flag(row, "durable", True)
        auto_delete = flag(row, "auto_delete", False)
        arguments = _checked_arguments(row)
        found = self._definitions.broker.vhosts.get(vhost)
        kind = self._kinds.get(vhost) or (found.default_kind if found is not None else "")
        if not name.startswith(RESERVED):
            arguments = with_default_kind(kind, durable, auto_delete, arguments)
            queue_settings(
                name,
                vhost,
                durable=durable,
                exclusive=False,
                auto_delete=auto_delete,
                arguments=arguments,
            )
            self._queues.add((vhost, name))

    def new_queues(self) -> dict[str, tuple[int, int]]:
        """Return for each vhost the number of existing queues and of new queues."""
        counts: dict[str, tuple[int, int]] = {}
        for vhost, name in self._queues:
            found = self._definitions.broker.vhosts.get(vhost)
            there, new = counts.get(vhost, (len(found.queues) if found is not None else 0, 0))
            is_new = found is None or name not in found.queues
            counts[vhost] = (there, new + 1 if is_new else new)
        return counts

    def put_queue(self, row: Row) -> None:
        vhost = self._definitions.broker.vhost(self._vhost(row))
        name = _object_name(row, "name")
        if not name.startswith(RESERVED) and name not in vhost.queues:
            vhost.declare_queue(
                name,
                durable=flag(row, "durable", True),
                auto_delete=flag(row, "auto_delete", False),
                arguments=_arguments(row),
            )

    def check_binding(self, row: Row) -> None:
        vhost = self._vhost(row)
        source = _object_name(row, "source")
        exchange = self._exchanges.get((vhost, source)) or self._given.get(source)
        found = self._definitions.broker.vhosts.get(vhost)
        if found is not None and source in found.exchanges:
            exchange = found.exchanges[source]
        arguments = _checked_arguments(row)
        if exchange is not None and source:
            exchange.check_binding(_name(row, "routing_key"), arguments)
        _object_name(row, "destination")
        if text(row, "destination_type") not in (_QUEUE, _EXCHANGE):
            raise PreconditionFailedError("destination_type must be queue or exchange")

    def put_binding(self, row: Row) -> None:
        vhost = self._definitions.broker.vhost(self._vhost(row))
        source = _object_name(row, "source")
        destination = _object_name(row, "destination")
        target: Target | None = vhost.exchanges.get(destination)
        if row["destination_type"] == _QUEUE:
            target = vhost.queues.get(destination)
        if target is not None and source and source in vhost.exchanges:
            vhost.bind(source, target, text(row, "routing_key"), _arguments(row))

    def _vhost(self, row: Row) -> str:
        return self._document.vhost_of(row, self._definitions)


def _name(row: Row, key: str) -> str:
    name = text(row, key)
    if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise PreconditionFailedError(f"{key} has more than {NAME_BYTES_MAX} bytes: {name}")
    return name


def _object_name(row: Row, key: str) -> str:
    """Return the name under which a queue or an exchange is declared."""
    return without_line_breaks(_name(row, key))


def _checked_arguments(row: Row) -> Table:
    arguments = _arguments(row)
    require_modest("an object of the definitions", arguments)
    return arguments


def _arguments(row: Row) -> Table:
    value = row.get("arguments") or {}
    if not isinstance(value, dict):
        raise PreconditionFailedError(f"arguments must be an object: {value}")
    try:
        table = table_of(value)
        encode_table(table)
    except ValueError as fault:
        raise PreconditionFailedError(f"arguments: {fault}") from None
    return table


def _default_kind(row: Row) -> str:
    inner = row.get("metadata")
    kind = maybe_text(inner, "default_queue_type") if isinstance(inner, dict) else None
    kind = maybe_text(row, "default_queue_type") or kind
    return kind if kind is not None and kind != "undefined" else ""
