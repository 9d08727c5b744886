"""Check the exchanges, queues and bindings of a document before an import changes anything.

The check declares them in vhosts that are thrown away, by the calls of the import itself. So the
engine refuses there what it would refuse in the middle of the import. Existing objects that a row
names are copied into these vhosts first, without bindings and messages. A row of an existing object
is declared in an empty vhost: the import skips it, but must refuse it if it is not valid. Limits on
the number of objects are compared at the end.
"""

from typing import Final

from leveret.definitions.object_importer import (
    arguments_of,
    object_name,
    put_binding,
    put_exchange,
    put_queue,
    require_target_kind,
    short_text,
    target_of,
)
from leveret.definitions.rows import Row, text
from leveret.engine.arguments.queue_arguments import remembering_stream
from leveret.engine.broker import Broker
from leveret.engine.exchanges.super_stream import SUPER_STREAM, partition_names
from leveret.engine.vhosts.queue_creation import make_queue
from leveret.engine.vhosts.state import BINDINGS_MAX, EXCHANGES_MAX
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import PreconditionFailedError

_NO_LIMIT: Final = 1 << 62


class ObjectChecker:
    """Declares the objects of one document in vhosts that are thrown away."""

    def __init__(self, broker: Broker) -> None:
        self._vhosts = broker.vhosts
        self._definition_bytes_max = broker.definition_bytes_max
        # Copies of existing objects, and the objects of the document. Limits come at the end.
        self._trial = Broker(0, _NO_LIMIT)
        self._empty = Broker(0, _NO_LIMIT)  # rows of objects that exist
        self._copied: dict[str, tuple[int, int, int]] = {}  # queues and exchanges, by vhost
        self.default_kinds: dict[str, str] = {}  # default queue types of the document, by vhost

    def check_exchange(self, vhost: str, row: Row) -> None:
        name = object_name(row, "name")
        arguments = arguments_of(row)
        names = [name, remembering_stream(f"exchange '{name}'", vhost, arguments)]
        if text(row, "type") == SUPER_STREAM:
            names += partition_names(name, arguments)
        trial = self._prepared(vhost, names)
        found = self._vhosts.get(vhost)
        if found is not None and name in found.exchanges:
            put_exchange(self._made(self._empty, vhost), row)
        put_exchange(trial, row)

    def check_queue(self, vhost: str, row: Row) -> None:
        name = object_name(row, "name")
        if not name:
            raise PreconditionFailedError("a queue must have a name")
        names = [name, remembering_stream(f"queue '{name}'", vhost, arguments_of(row))]
        trial = self._prepared(vhost, names)
        found = self._vhosts.get(vhost)
        if found is not None and name in found.queues:
            put_queue(self._made(self._empty, vhost), row)
        put_queue(trial, row)

    def check_binding(self, vhost: str, row: Row) -> None:
        require_target_kind(row)
        source, destination = object_name(row, "source"), object_name(row, "destination")
        trial = self._prepared(vhost, [source, destination])
        arguments = arguments_of(row)
        found = self._vhosts.get(vhost)
        target = target_of(found, row) if found is not None else None
        if found is not None and target is not None:
            if found.has_binding(source, target, short_text(row, "routing_key"), arguments):
                return
        put_binding(trial, row)

    def _made(self, broker: Broker, name: str) -> Vhost:
        """Return a vhost of a broker that is thrown away."""
        made = broker.vhosts.get(name) or broker.add_vhost(name)
        found = self._vhosts.get(name)
        made.default_kind = self.default_kinds.get(name) or (found.default_kind if found else "")
        return made

    def _prepared(self, vhost: str, names: list[str]) -> Vhost:
        """Return the vhost of the trial, with copies of the existing objects of these names."""
        made = self._made(self._trial, vhost)
        queues, exchanges, size = self._copied.setdefault(vhost, (0, len(made.exchanges), 0))
        found = self._vhosts.get(vhost)
        if found is None:
            return made
        self._trial.turn.is_restoring = True  # no limits, and no streams for `x-remember`
        size_before = made.definition_bytes
        for name in names:
            if name in found.queues and name not in made.queues:
                _copy_queue(found, made, name)
                queues += 1
            if name in found.exchanges and name not in made.exchanges:
                _copy_exchange(found, made, name)
                exchanges += 1
        self._trial.turn.is_restoring = False
        size += made.definition_bytes - size_before
        self._copied[vhost] = (queues, exchanges, size)
        return made

    def require_room(self, queue_limits: dict[str, object]) -> None:
        """Raise PreconditionFailedError if a vhost would have too many objects.

        `queue_limits` are the limits that the document sets.
        """
        for name, (queues, exchanges, size) in self._copied.items():
            made = self._trial.vhosts[name]
            found = self._vhosts.get(name)
            most = queue_limits.get(name, found.queues_max if found is not None else -1)
            if isinstance(most, int) and most >= 0:
                there = len(found.queues) if found is not None else 0
                _require_within(name, "queue", there, len(made.queues) - queues, most)
            there = len(found.exchanges) if found is not None else exchanges
            most = found.exchanges_max if found is not None else EXCHANGES_MAX
            _require_within(name, "exchange", there, len(made.exchanges) - exchanges, most)
            there = found.binding_count if found is not None else 0
            most = found.bindings_max if found is not None else BINDINGS_MAX
            _require_within(name, "binding", there, made.binding_count, most)
            there = found.definition_bytes if found is not None else 0
            most = found.definition_bytes_max if found is not None else self._definition_bytes_max
            new = made.definition_bytes - size
            _require_within(name, "definition byte", there, new, most)


def _copy_queue(source: Vhost, target: Vhost, name: str) -> None:
    queue = source.queues[name]
    make_queue(
        target,
        name,
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        arguments=queue.arguments,
    )


def _copy_exchange(source: Vhost, target: Vhost, name: str) -> None:
    exchange = source.exchanges[name]
    target.declare_exchange(
        name,
        exchange.kind,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments,
    )


def _require_within(vhost: str, what: str, there: int, new: int, most: int) -> None:
    """RabbitMQ: refuse an import that would exceed a limit of a vhost."""
    if new and there + new > most:
        raise PreconditionFailedError(
            f'Adding {new} {what}(s) to virtual host "{vhost}" would exceed the limit of '
            f"{most} {what}(s).\n\nThis virtual host currently has {there} {what}(s) "
            "defined.\n\nImport aborted!"
        )
