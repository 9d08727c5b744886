"""A vhost: a name space of exchanges and queues, and the commands that define them.

Every command checks everything first and then changes, so that a refused command has changed
nothing. The fields are in `state`. `queue_creation` and `bindings` make the changes.

Permissions are not checked here: fronts check them before they call.
"""

from leveret.engine.arguments.equivalence import (
    require_equivalent_exchange,
    require_equivalent_queue,
)
from leveret.engine.arguments.packed import ARGUMENT_VALUES_MAX, require_modest
from leveret.engine.arguments.queue_arguments import (
    exchange_alternate,
    exchange_deduplication,
    with_default_kind,
)
from leveret.engine.arguments.rules import STREAM, STREAM_ARGUMENTS
from leveret.engine.deduplication.deduplication import Deduplication
from leveret.engine.exchanges.binding import identity_of
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.registry import make_exchange
from leveret.engine.exchanges.super_stream import SUPER_STREAM, partition_names
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.target import Target
from leveret.engine.turns.events import note_deleted, note_exchange_created
from leveret.engine.turns.session import Outlet
from leveret.engine.vhosts.bindings import (
    add_binding,
    remove_binding,
    remove_bindings_to,
    remove_exchange,
)
from leveret.engine.vhosts.definition_records import encode_exchange, encode_queue_deletion
from leveret.engine.vhosts.definition_sizes import definition_bytes
from leveret.engine.vhosts.names import (
    RESERVED,
    require_known_kind,
    require_not_default,
    require_not_reserved,
    without_line_breaks,
)
from leveret.engine.vhosts.pausing import forget_pause
from leveret.engine.vhosts.queue_creation import (
    add_holding_queue,
    close_queue,
    make_queue,
    open_chronicle,
)
from leveret.engine.vhosts.state import VhostState
from leveret.errors import AccessRefusedError, PreconditionFailedError, UnsupportedError
from leveret.wire.tables import Table, field_of


class Vhost(VhostState):
    """The commands of a vhost."""

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool,
        arguments: Table,
        auto_delete: bool = False,
        internal: bool = False,
    ) -> Exchange:
        """Make the exchange, or check that the existing one is equivalent. Return it."""
        require_not_default(name)
        name = without_line_breaks(name)
        require_known_kind(kind)
        self._require_modest("exchange", name, arguments)
        have = self.exchanges.get(name)
        if have is not None:
            require_equivalent_exchange(
                name,
                self.name,
                (have.kind, have.durable, have.auto_delete, have.internal, have.arguments),
                (kind, durable, auto_delete, internal, arguments),
            )
            return have
        require_not_reserved("exchange", name)
        if len(self.exchanges) >= self.exchanges_max and not self.turn.is_restoring:
            raise PreconditionFailedError(
                f"cannot declare exchange '{name}': exchange limit in vhost '{self.name}' "
                f"({self.exchanges_max}) is reached"
            )
        self.require_definition_room(f"declare exchange '{name}'")
        alternate = exchange_alternate(name, self.name, arguments)
        partitions = partition_names(name, arguments) if kind == SUPER_STREAM else []
        self._require_streams(name, partitions)
        deduplication = exchange_deduplication(name, self.name, internal, arguments)
        made = make_exchange(
            kind,
            name,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
            alternate=alternate,
            seed=self.seed,
        )
        made.chronicle = open_chronicle(self, f"exchange '{name}'", arguments)
        self.exchanges[name] = made
        self.definition_bytes += definition_bytes(made)
        if deduplication is not None:
            made.deduplication_id = self.slots.new_id()
            made.deduplication = Deduplication(
                deduplication, made.deduplication_id, durable, self.turn.timers, self.key_room
            )
        if made.is_delayed:
            add_holding_queue(self, made)
        self.changed()
        if durable:
            holding = self.holding.get(name)
            self.log(
                encode_exchange(self.name, made, holding.ledger.id if holding is not None else 0)
            )
        if self.turn.listens:
            note_exchange_created(self.turn, self.name, made)
        if not self.turn.is_restoring:
            self._add_partitions(made, partitions)
            if self.enforcer is not None:
                self.enforcer.apply(made)
        return made

    def _require_streams(self, exchange: str, names: list[str]) -> None:
        for name in names:
            have = self.queues.get(name)
            if have is not None and not isinstance(have, Stream):
                raise PreconditionFailedError(
                    f"queue '{name}' in vhost '{self.name}' cannot be a partition of "
                    f"'{exchange}': it is not a stream"
                )

    def _add_partitions(self, exchange: Exchange, names: list[str]) -> None:
        """Make the streams of a super stream. They take over its stream arguments."""
        arguments: Table = {"x-queue-type": field_of(STREAM)}
        for key, field in exchange.arguments.items():
            if key in STREAM_ARGUMENTS:
                arguments[key] = field
        number = 0
        for name in names:
            stream = self.queues.get(name)
            if stream is None:
                stream = make_queue(self, name, durable=True, arguments=arguments)
            add_binding(self, exchange, stream, str(number), {})
            number += 1

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Remove an exchange and its bindings. A missing exchange is no error."""
        require_not_default(name)
        exchange = self.exchanges.get(name)
        if name.startswith(RESERVED) and exchange is not None:
            raise AccessRefusedError(
                f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed"
            )
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise PreconditionFailedError(f"exchange '{name}' in vhost '{self.name}' in use")
        remove_exchange(self, exchange)

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool,
        arguments: Table,
        auto_delete: bool = False,
        owner: Outlet | None = None,
        user: Outlet | None = None,
    ) -> Queue:
        """Make the queue, or check that the existing one is equivalent. Return it.

        `owner` is the connection of an exclusive queue, which is never durable. `user` is the
        connection that declares.
        """
        name = without_line_breaks(name)
        durable = durable and owner is None
        self._require_modest("queue", name, arguments)
        self.turn.churn.queues_declared += 1
        arguments = with_default_kind(self.default_kind, durable, auto_delete, arguments)
        have = self.queues.get(name)
        if have is None:
            self._require_room(name)
            return make_queue(
                self,
                name,
                durable=durable,
                owner=owner,
                auto_delete=auto_delete,
                arguments=arguments,
            )
        if have.owner is not owner or (have.owner is not None and have.owner is not user):
            raise self.locked(name)
        require_equivalent_queue(
            name,
            self.name,
            have_durable=have.durable,
            have_auto_delete=have.auto_delete,
            have_arguments=have.arguments,
            durable=durable,
            auto_delete=auto_delete,
            arguments=arguments,
            kind=have.settings.kind,
        )
        have.used_ms = self.turn.now_ms
        return have

    def _require_modest(
        self, what: str, name: str, arguments: Table, values_max: int = ARGUMENT_VALUES_MAX
    ) -> None:
        if arguments and not self.turn.is_restoring:  # objects of an older version stay
            require_modest(f"{what} '{name}' in vhost '{self.name}'", arguments, values_max)

    def _require_room(self, name: str) -> None:
        if 0 <= self.queues_max <= len(self.queues) and not self.turn.is_restoring:
            raise PreconditionFailedError(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' "
                f"({self.queues_max}) is reached"
            )
        self.require_definition_room(f"declare queue '{name}'")

    def delete_queue(
        self,
        name: str,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        user: Outlet | None = None,
    ) -> int:
        """Remove a queue, its bindings and its messages. Return how many were ready.

        A missing queue is no error.
        """
        if name not in self.queues:
            return 0
        queue = self.queue(name, user)
        queue.catch_up()
        if queue.is_quorum and (if_unused or if_empty):
            flag = "if-unused" if if_unused else "if-empty"
            raise UnsupportedError(
                f"cannot delete queue '{name}' in vhost '{self.name}'. queue.delete operations "
                f"with {flag} flag set are not supported by quorum queues"
            )
        if if_unused and queue.consumers:
            raise PreconditionFailedError(f"queue '{name}' in vhost '{self.name}' in use")
        if if_empty and queue.message_count() != 0:
            raise PreconditionFailedError(f"queue '{name}' in vhost '{self.name}' not empty")
        count = queue.message_count()
        self.remove_queue(queue)
        return count

    def remove_if_present(self, queue: Queue) -> None:
        """Remove a queue, unless it belonged to a deleted vhost of the same name."""
        if self.queues.get(queue.name) is queue:
            self.remove_queue(queue)

    def remove_queue(self, queue: Queue) -> None:
        """Remove a queue, whatever its state."""
        if queue.deleted:
            return
        self.queues.pop(queue.name, None)
        self.targets.pop(queue.name, None)
        self.definition_bytes -= definition_bytes(queue)
        self._keep_counts(queue)
        self.changed()
        note_deleted(self.turn, "queue.deleted", self.name, queue.name)
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue.name, None)
        if queue.durable:
            self.log(encode_queue_deletion(queue))
        if queue.paused and self.register is not None:
            forget_pause(self.register, queue)
        close_queue(self, queue)
        remove_bindings_to(self, queue)

    def _keep_counts(self, queue: Queue) -> None:
        """Add the counts of a queue that is removed to the totals of the vhost."""
        self.turn.churn.queues_deleted += 1
        counts = self.retired_counts
        counts.queued += queue.published
        counts.duplicates += queue.deduplicated
        counts.delivered += queue.delivered
        counts.delivered_no_ack += queue.delivered_no_ack
        counts.got += queue.got
        counts.got_no_ack += queue.got_no_ack
        counts.got_empty += queue.got_empty
        counts.acked += queue.acked
        counts.redelivered += queue.redelivered

    def bind(self, source: str, target: Target, routing_key: str, arguments: Table) -> None:
        """Bind a queue or an exchange to an exchange."""
        exchange = self.exchange(source)
        most = exchange.binding_values_max
        self._require_modest("a binding of exchange", source, arguments, values_max=most)
        exchange.check_binding(routing_key, arguments)
        if exchange.classic_only and not (isinstance(target, Queue) and target.is_classic):
            raise PreconditionFailedError(
                f"'{exchange.kind}' exchange '{source}' in vhost '{self.name}' "
                "can be bound to classic queues only"
            )
        self._require_binding_room(source, target, routing_key, arguments)
        add_binding(self, exchange, target, routing_key, arguments)

    def _require_binding_room(
        self, source: str, target: Target, routing_key: str, arguments: Table
    ) -> None:
        """Raise PreconditionFailedError if the vhost may not have this further binding."""
        is_full = (
            self.binding_count >= self.bindings_max
            or self.definition_bytes >= self.definition_bytes_max
        )
        if not is_full or self.has_binding(source, target, routing_key, arguments):
            return
        wish = f"bind '{target.name}' to exchange '{source}'"
        self.require_definition_room(wish)
        if not self.turn.is_restoring:
            raise PreconditionFailedError(
                f"cannot {wish}: binding limit in vhost '{self.name}' "
                f"({self.bindings_max}) is reached"
            )

    def has_binding(self, source: str, target: Target, routing_key: str, arguments: Table) -> bool:
        exchange = self.exchanges.get(source)
        identity = identity_of(target, isinstance(target, Queue), routing_key, arguments)
        return exchange is not None and identity in exchange.bindings

    def unbind(self, source: str, target: Target, routing_key: str, arguments: Table) -> None:
        """Undo `bind`. A missing binding is no error."""
        exchange = self.exchanges.get(source)
        if exchange is not None:
            remove_binding(self, exchange, target, routing_key, arguments)
