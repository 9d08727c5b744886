"""A vhost: exchanges, queues and bindings by name, and the commands that define them.

Every command checks first and changes after, so that a refused one has changed nothing. Any change
that could alter a route raises `version`: cached routes with another version are found anew.

Permissions are not looked at here: fronts ask before they call.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.argument_rules import STREAM, STREAM_ARGUMENTS
from leveret.engine.arguments import (
    QueueSettings,
    exchange_alternate,
    exchange_deduplication,
    queue_settings,
    remembering_stream,
    require_equivalent_exchange,
    require_equivalent_queue,
    with_default_kind,
)
from leveret.engine.chronicle import Chronicle
from leveret.engine.deduplication import Deduplication
from leveret.engine.definitions import (
    binding_gone,
    binding_made,
    exchange_gone,
    exchange_made,
    queue_gone,
    queue_made,
)
from leveret.engine.events import (
    EVENT_EXCHANGE,
    binding_changed,
    exchange_created,
    gone,
    queue_created,
)
from leveret.engine.exchanges.binding import Binding, identity_of
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.registry import KINDS, make_exchange, predeclared
from leveret.engine.exchanges.super_stream import SUPER_STREAM, partition_names
from leveret.engine.governor import Governor
from leveret.engine.pausing import forget as forget_pause
from leveret.engine.queue import Queue
from leveret.engine.register import Register
from leveret.engine.routing import Router
from leveret.engine.session import Consumer, Outlet, Turn
from leveret.engine.slots import Slots
from leveret.engine.streams.chronicle import StreamChronicle
from leveret.engine.streams.segments import SegmentStore
from leveret.engine.streams.stream import Stream
from leveret.engine.stuck import Stuck
from leveret.engine.tally import Counts
from leveret.engine.target import Target
from leveret.engine.trails import traced
from leveret.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked, Unsupported
from leveret.wire.tables import Table, field_of

PARKED: Final = "leveret.parked"  # where messages over their delivery limit go without a DLX
_RESERVED: Final = "amq."


class Vhost:
    """A name space of exchanges and queues."""

    def __init__(self, name: str, turn: Turn, slots: Slots, seed: i64) -> None:
        self.name = name
        self.turn = turn
        self.slots = slots
        self.seed = seed  # of the exchanges that choose at random
        self.version: i64 = 1  # raised by every change of exchanges, queues or bindings
        self.queues: dict[str, Queue] = {}
        self.targets: dict[str, Target] = {}  # the same queues, as the default exchange sees them
        self.exchanges: dict[str, Exchange] = {e.name: e for e in predeclared(self.targets)}
        self.router = Router(self.exchanges)
        self.sources: dict[Target, dict[str, Exchange]] = {}  # what has a binding to a target
        self.replies: dict[str, Consumer] = {}  # who waits for direct replies, by name
        self.stuck = Stuck(turn)
        self.gone = Counts()  # of queues, exchanges and sessions that are gone
        self.holding: dict[str, Queue] = {}  # what delayed exchanges hold back, by exchange
        self.register: Register | None = None  # the broker's
        self.segment_store: SegmentStore | None = None  # where streams are kept, if not in memory
        self.governor: Governor | None = None  # sees to it that policies are obeyed
        # What operators said of it
        self.tracing = False  # what passes is shown to whoever listens; see `set_tracing`
        self.routed: list[str] = []  # where the last message went, while it is traced
        self._event_exchange: Exchange | None = None  # of the vhost that has it
        self.default_kind = ""  # of queues whose declaration names none; empty: classic
        self.queues_max: i64 = -1  # none may be declared beyond; -1: no limit

    def _log(self, definition: bytes) -> None:
        """Keep a definition for the next start."""
        journal = self.turn.journal
        if journal is not None:
            journal.define(definition)

    def add_event_exchange(self) -> None:
        """This is the vhost where events are told."""
        exchange = make_exchange("topic", EVENT_EXCHANGE, True, False, True, {}, None)
        self.exchanges[EVENT_EXCHANGE] = exchange
        self._event_exchange = exchange

    def set_tracing(self, is_on: bool) -> None:
        """Show what passes to whoever is bound to the trace exchange, or do not."""
        if is_on != self.tracing:
            self.tracing = is_on
            self.version += 1  # routes that are kept would pass by
            self.turn.traced += 1 if is_on else -1

    def _changed(self) -> None:
        """Routes are no longer what they were."""
        self.version += 1
        if self._event_exchange is not None:
            self.turn.listens = len(self._event_exchange.bindings) != 0
        self.stuck.retry()

    # Exchanges

    def exchange(self, name: str) -> Exchange:
        found = self.exchanges.get(name)
        if found is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'")
        return found

    def declare_exchange(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Table,
    ) -> Exchange:
        """Make the exchange, or check that the one of this name is the same."""
        require_not_default(name)
        name = _without_line_breaks(name)
        require_known_kind(kind)
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
        alternate = exchange_alternate(name, self.name, arguments)
        partitions = partition_names(name, arguments) if kind == SUPER_STREAM else []
        self._require_streams(name, partitions)
        deduplication = exchange_deduplication(name, self.name, internal, arguments)
        made = make_exchange(
            kind, name, durable, auto_delete, internal, arguments, alternate, self.seed
        )
        made.chronicle = self.chronicle(f"exchange '{name}'", arguments)
        self.exchanges[name] = made
        if deduplication is not None:
            made.deduplication_id = self.slots.new_id()
            made.deduplication = Deduplication(
                deduplication, made.deduplication_id, durable, self.turn.pulse
            )
        if made.is_delayed:
            self._add_holding_queue(made)
        self._changed()
        if durable:
            holding = self.holding.get(name)
            self._log(
                exchange_made(self.name, made, holding.ledger.id if holding is not None else 0)
            )
        if self.turn.listens:
            exchange_created(self.turn, self.name, made)
        if not self.turn.is_restoring:
            self._add_partitions(made, partitions)
            if self.governor is not None:
                self.governor.apply(made)
        return made

    def _require_streams(self, exchange: str, names: list[str]) -> None:
        for name in names:
            have = self.queues.get(name)
            if have is not None and not isinstance(have, Stream):
                raise PreconditionFailed(
                    f"queue '{name}' in vhost '{self.name}' cannot be a partition of "
                    f"'{exchange}': it is not a stream"
                )

    def _add_partitions(self, exchange: Exchange, names: list[str]) -> None:
        """A super stream brings its streams along; what they may be told is in its arguments."""
        arguments: Table = {"x-queue-type": field_of(STREAM)}
        for key, field in exchange.arguments.items():
            if key in STREAM_ARGUMENTS:
                arguments[key] = field
        number = 0
        for name in names:
            stream = self.queues.get(name)
            if stream is None:
                stream = self._make_queue(name, True, None, False, arguments)
            self.bind(exchange.name, stream, str(number), {})
            number += 1

    def _add_holding_queue(self, exchange: Exchange) -> None:
        """A delayed exchange keeps what is not due in a queue that has no name of its own."""
        settings = queue_settings(exchange.name, self.name, exchange.durable, False, False, {})
        holding = self._new_queue(exchange.name, settings, exchange.durable, False, None, {})
        holding.holds_for = exchange.name
        self.holding[exchange.name] = holding

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        """Remove an exchange and its bindings; one that does not exist is no error."""
        require_not_default(name)
        exchange = self.exchanges.get(name)
        if name.startswith(_RESERVED) and exchange is not None:
            raise AccessRefused(
                f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed"
            )
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise PreconditionFailed(f"exchange '{name}' in vhost '{self.name}' in use")
        self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> None:
        del self.exchanges[exchange.name]
        self.gone.published += exchange.published_in
        self._changed()
        gone(self.turn, "exchange.deleted", self.name, exchange.name)
        if exchange.durable:
            self._log(exchange_gone(self.name, exchange.name))
        for binding in exchange.bindings.values():
            self._forget_source(exchange, binding.target)
        if exchange.deduplication is not None:
            exchange.deduplication.close()
        holding = self.holding.pop(exchange.name, None)
        if holding is not None:
            self.close_queue(holding)
        self._remove_bindings_to(exchange)

    # Queues

    def queue(self, name: str, user: Outlet | None) -> Queue:
        """The queue of this name, if `user` may use it."""
        found = self.queues.get(name)
        if found is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        if found.owner is not None and found.owner is not user:
            raise self._locked(name)
        return found

    def _locked(self, name: str) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked queue '{name}' in vhost '{self.name}'. "
            "It could be originally declared on another connection or the exclusive property "
            "value does not match that of the original declaration."
        )

    def declare_queue(
        self,
        name: str,
        durable: bool,
        owner: Outlet | None,
        user: Outlet | None,
        auto_delete: bool,
        arguments: Table,
    ) -> Queue:
        """Make the queue, or check that the one of this name is the same.

        `owner` is set for an exclusive queue. An exclusive queue is never durable.
        """
        name = _without_line_breaks(name)
        durable = durable and owner is None
        self.turn.churn.queues_declared += 1
        arguments = with_default_kind(self.default_kind, durable, auto_delete, arguments)
        have = self.queues.get(name)
        if have is None:
            self._require_room(name)
            return self._make_queue(name, durable, owner, auto_delete, arguments)
        if have.owner is not owner or (have.owner is not None and have.owner is not user):
            raise self._locked(name)
        require_equivalent_queue(
            name,
            self.name,
            have.durable,
            have.auto_delete,
            have.arguments,
            durable,
            auto_delete,
            arguments,
            have.settings.kind,
        )
        have.used_ms = self.turn.now_ms
        return have

    def _require_room(self, name: str) -> None:
        if 0 <= self.queues_max <= len(self.queues) and not self.turn.is_restoring:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' "
                f"({self.queues_max}) is reached"
            )

    def _make_queue(
        self,
        name: str,
        durable: bool,
        owner: Outlet | None,
        auto_delete: bool,
        arguments: Table,
    ) -> Queue:
        settings = queue_settings(
            name, self.name, durable, owner is not None, auto_delete, arguments
        )
        if settings.kind == STREAM:
            queue: Queue = self._new_stream(name, settings, arguments)
        else:
            chronicle = self.chronicle(f"queue '{name}'", arguments)
            queue = self._new_queue(name, settings, durable, auto_delete, owner, arguments)
            queue.chronicle = traced(chronicle, self.turn.trails)
        self.queues[name] = queue
        self.targets[name] = queue
        self.turn.churn.queues_created += 1
        self._changed()
        if self.governor is not None and not self.turn.is_restoring:
            self.governor.apply(queue)
        if owner is not None:
            owner.exclusive_queues[name] = queue
        if self.turn.listens:
            is_own = owner is not None
            kind = settings.kind
            queue_created(self.turn, self.name, name, kind, durable, auto_delete, is_own, arguments)
        if durable and not self.turn.is_restoring:
            self._log(queue_made(queue))
        return queue

    def _new_queue(
        self,
        name: str,
        settings: QueueSettings,
        durable: bool,
        auto_delete: bool,
        owner: Outlet | None,
        arguments: Table,
    ) -> Queue:
        slot = self.slots.take()
        queue = Queue(
            self.name, name, slot, settings, durable, auto_delete, owner, arguments, self.turn
        )
        self._enter(queue)
        return queue

    def _enter(self, queue: Queue) -> None:
        """Give a new queue its number and its slot."""
        queue.ledger.id = self.slots.new_id()
        settings = queue.settings.deduplication
        if settings is not None:
            queue.deduplication = Deduplication(
                settings, queue.ledger.id, queue.durable, self.turn.pulse
            )
        self.slots.put(queue.slot, queue)

    def _new_stream(self, name: str, settings: QueueSettings, arguments: Table) -> Stream:
        slot = self.slots.take()
        stream = Stream(self.name, name, slot, settings, arguments, self.turn)
        self._enter(stream)
        if self.segment_store is not None:
            stream.open(self.segment_store.open(stream.ledger.id))
        return stream

    def delete_queue(self, name: str, if_unused: bool, if_empty: bool, user: Outlet | None) -> int:
        """Remove a queue, its bindings and its messages; how many were ready.

        One that does not exist is no error.
        """
        if name not in self.queues:
            return 0
        queue = self.queue(name, user)
        queue.catch_up()
        if queue.is_quorum and (if_unused or if_empty):
            flag = "if-unused" if if_unused else "if-empty"
            raise Unsupported(
                f"cannot delete queue '{name}' in vhost '{self.name}'. queue.delete operations "
                f"with {flag} flag set are not supported by quorum queues"
            )
        if if_unused and queue.consumers:
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' in use")
        if if_empty and queue.message_count() != 0:
            raise PreconditionFailed(f"queue '{name}' in vhost '{self.name}' not empty")
        count = queue.message_count()
        self.remove_queue(queue)
        return count

    def remove_if_present(self, queue: Queue) -> None:
        """Remove a queue unless it has gone with an earlier vhost of this name."""
        if self.queues.get(queue.name) is queue:
            self.remove_queue(queue)

    def remove_queue(self, queue: Queue) -> None:
        """Remove a queue whatever its state."""
        if queue.deleted:
            return
        self.queues.pop(queue.name, None)
        self.targets.pop(queue.name, None)
        self._keep_counts(queue)
        self._changed()
        gone(self.turn, "queue.deleted", self.name, queue.name)
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue.name, None)
        if queue.durable:
            self._log(queue_gone(queue))
        if queue.paused and self.register is not None:
            forget_pause(self.register, queue)
        self.close_queue(queue)
        self._remove_bindings_to(queue)

    def _keep_counts(self, queue: Queue) -> None:
        """The totals of the vhost keep what a queue has counted."""
        self.turn.churn.queues_deleted += 1
        gone = self.gone
        gone.queued += queue.published
        gone.duplicates += queue.deduplicated
        gone.delivered += queue.delivered
        gone.delivered_no_ack += queue.delivered_no_ack
        gone.got += queue.got
        gone.got_no_ack += queue.got_no_ack
        gone.got_empty += queue.got_empty
        gone.acked += queue.acked
        gone.redelivered += queue.redelivered

    def close_queue(self, queue: Queue) -> None:
        """A queue that nobody can name any more ends."""
        queue.close()
        if queue.deduplication is not None:
            queue.deduplication.close()
        if queue.unacked == 0:
            self.slots.release(queue.slot)

    def parked_queue(self) -> Queue:
        """The queue for messages over their delivery limit, made when it is first needed."""
        found = self.queues.get(PARKED)
        return found if found is not None else self._make_queue(PARKED, True, None, False, {})

    def chronicle(self, what: str, arguments: Table) -> Chronicle | None:
        """Where what passes is remembered; a stream that does not exist yet is made."""
        name = remembering_stream(what, self.name, arguments)
        if not name:
            return None
        have = self.queues.get(name)
        if have is not None and not isinstance(have, Stream):
            raise PreconditionFailed(
                f"invalid arg 'x-remember' for {what} in vhost '{self.name}': "
                f"queue '{name}' is not a stream"
            )
        if have is None and not self.turn.is_restoring:
            require_not_reserved("queue", name)
            self._make_queue(name, True, None, False, {"x-queue-type": field_of(STREAM)})
        return StreamChronicle(self.queues, name)

    # Bindings

    def bind(self, source: str, target: Target, routing_key: str, arguments: Table) -> None:
        """Lead messages from an exchange to a queue or a further exchange."""
        exchange = self.exchange(source)
        is_queue = isinstance(target, Queue)
        exchange.check_binding(routing_key, arguments)
        if exchange.classic_only and not (isinstance(target, Queue) and target.is_classic):
            raise PreconditionFailed(
                f"'{exchange.kind}' exchange '{source}' in vhost '{self.name}' "
                "can be bound to classic queues only"
            )
        binding = Binding(source, target, is_queue, routing_key, arguments)
        if exchange.add(binding):
            self.sources.setdefault(target, {})[source] = exchange
            self._changed()
            if self.turn.listens:
                binding_changed(self.turn, "binding.created", self.name, binding)
            if _is_durable(exchange) and _is_durable(target) and not self.turn.is_restoring:
                self._log(binding_made(self.name, binding))

    def has_binding(self, source: str, target: Target, routing_key: str, arguments: Table) -> bool:
        exchange = self.exchanges.get(source)
        identity = identity_of(target, isinstance(target, Queue), routing_key, arguments)
        return exchange is not None and identity in exchange.bindings

    def unbind(self, source: str, target: Target, routing_key: str, arguments: Table) -> None:
        """Undo `bind`; a binding that does not exist is no error."""
        exchange = self.exchanges.get(source)
        if exchange is None or not exchange.remove(target, routing_key, arguments):
            return
        self._changed()
        undone = Binding(source, target, isinstance(target, Queue), routing_key, arguments)
        if _is_durable(exchange) and _is_durable(target):
            self._log(binding_gone(self.name, undone))
        if self.turn.listens:
            binding_changed(self.turn, "binding.deleted", self.name, undone)
        if not exchange.bindings_to(target):
            self._forget_source(exchange, target)
        self._remove_if_unused(exchange)

    def _forget_source(self, exchange: Exchange, target: Target) -> None:
        sources = self.sources.get(target)
        if sources is not None:
            sources.pop(exchange.name, None)
            if not sources:
                del self.sources[target]

    def _remove_bindings_to(self, target: Target) -> None:
        for exchange in self.sources.pop(target, {}).values():
            if self.turn.listens:
                for binding in exchange.bindings_to(target):
                    binding_changed(self.turn, "binding.deleted", self.name, binding)
            exchange.remove_target(target)
            self._remove_if_unused(exchange)

    def _remove_if_unused(self, exchange: Exchange) -> None:
        """An auto-delete exchange goes with its last binding."""
        if self.turn.is_restoring:
            return
        if exchange.auto_delete and not exchange.bindings and exchange.name in self.exchanges:
            self._remove_exchange(exchange)


def _is_durable(target: Target) -> bool:
    if isinstance(target, Queue):
        return target.durable
    return isinstance(target, Exchange) and target.durable


def require_not_default(name: str) -> None:
    """The default exchange cannot be declared, deleted or bound."""
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def require_not_reserved(what: str, name: str) -> None:
    """Names that start with `amq.` are the broker's own."""
    if name.startswith(_RESERVED):
        raise AccessRefused(f"{what} name '{name}' contains reserved prefix 'amq.*'")


def require_known_kind(kind: str) -> None:
    """An unknown exchange type is refused even where the exchange exists."""
    if not kind:
        raise PreconditionFailed("invalid exchange type ''")
    if kind not in KINDS:
        raise PreconditionFailed(f"unknown exchange type '{kind}'")


def _without_line_breaks(name: str) -> str:
    return name.replace("\r", "").replace("\n", "")
