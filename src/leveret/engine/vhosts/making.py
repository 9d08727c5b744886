"""Making the queues and streams of a vhost, and ending them.

Whoever calls has checked that there is none of this name. A queue gets a slot, by which sessions
find it, and a number, by which the log knows it; both stay its own until nothing of it is in
flight. What a queue or exchange with `x-remember` tells goes to a stream that is made here too.

Invariant: a durable queue is in the log before anything that happens to it is.
"""

from typing import Final

from leveret.engine.arguments.queue_arguments import (
    QueueSettings,
    queue_settings,
    remembering_stream,
)
from leveret.engine.arguments.rules import STREAM
from leveret.engine.deduplication.deduplication import Deduplication
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.history.life_events import Chronicle
from leveret.engine.history.tracing import add_tracing
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.chronicle import StreamChronicle
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.events import queue_created
from leveret.engine.turns.session import Outlet
from leveret.engine.vhosts.definition_records import queue_made
from leveret.engine.vhosts.names import require_not_reserved
from leveret.engine.vhosts.state import VhostState
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Table, field_of

PARKED: Final = "leveret.parked"  # where messages over their delivery limit go without a DLX


def make_queue(
    vhost: VhostState,
    name: str,
    durable: bool,
    owner: Outlet | None,
    auto_delete: bool,
    arguments: Table,
) -> Queue:
    """Make a queue or a stream, as its arguments say; raises where they are not valid."""
    settings = queue_settings(name, vhost.name, durable, owner is not None, auto_delete, arguments)
    if settings.kind == STREAM:
        queue: Queue = _new_stream(vhost, name, settings, arguments)
    else:
        chronicle = chronicle_of(vhost, f"queue '{name}'", arguments)
        queue = _new_queue(vhost, name, settings, durable, auto_delete, owner, arguments)
        queue.chronicle = add_tracing(chronicle, vhost.turn.traced_messages)
    vhost.queues[name] = queue
    vhost.targets[name] = queue
    vhost.turn.churn.queues_created += 1
    vhost.changed()
    if vhost.governor is not None and not vhost.turn.is_restoring:
        vhost.governor.apply(queue)
    if owner is not None:
        owner.exclusive_queues[name] = queue
    if vhost.turn.listens:
        is_own = owner is not None
        kind = settings.kind
        queue_created(vhost.turn, vhost.name, name, kind, durable, auto_delete, is_own, arguments)
    if durable and not vhost.turn.is_restoring:
        vhost.log(queue_made(queue))
    return queue


def add_holding_queue(vhost: VhostState, exchange: Exchange) -> None:
    """A delayed exchange keeps what is not due in a queue that has no name of its own."""
    settings = queue_settings(exchange.name, vhost.name, exchange.durable, False, False, {})
    holding = _new_queue(vhost, exchange.name, settings, exchange.durable, False, None, {})
    holding.holds_for = exchange.name
    vhost.holding[exchange.name] = holding


def parked_queue(vhost: VhostState) -> Queue:
    """The queue for messages over their delivery limit, made when it is first needed."""
    found = vhost.queues.get(PARKED)
    return found if found is not None else make_queue(vhost, PARKED, True, None, False, {})


def chronicle_of(vhost: VhostState, what: str, arguments: Table) -> Chronicle | None:
    """Where what passes is remembered; a stream that does not exist yet is made."""
    name = remembering_stream(what, vhost.name, arguments)
    if not name:
        return None
    have = vhost.queues.get(name)
    if have is not None and not isinstance(have, Stream):
        raise PreconditionFailedError(
            f"invalid arg 'x-remember' for {what} in vhost '{vhost.name}': "
            f"queue '{name}' is not a stream"
        )
    if have is None and not vhost.turn.is_restoring:
        require_not_reserved("queue", name)
        make_queue(vhost, name, True, None, False, {"x-queue-type": field_of(STREAM)})
    return StreamChronicle(vhost.queues, name)


def _new_queue(
    vhost: VhostState,
    name: str,
    settings: QueueSettings,
    durable: bool,
    auto_delete: bool,
    owner: Outlet | None,
    arguments: Table,
) -> Queue:
    slot = vhost.slots.take()
    queue = Queue(
        vhost.name, name, slot, settings, durable, auto_delete, owner, arguments, vhost.turn
    )
    _enter(vhost, queue)
    return queue


def _new_stream(vhost: VhostState, name: str, settings: QueueSettings, arguments: Table) -> Stream:
    slot = vhost.slots.take()
    stream = Stream(vhost.name, name, slot, settings, arguments, vhost.turn)
    _enter(vhost, stream)
    if vhost.segment_store is not None:
        stream.open(vhost.segment_store.open(stream.ledger.id))
    return stream


def _enter(vhost: VhostState, queue: Queue) -> None:
    """Give a new queue its number and its slot."""
    queue.ledger.id = vhost.slots.new_id()
    settings = queue.settings.deduplication
    if settings is not None:
        queue.deduplication = Deduplication(
            settings, queue.ledger.id, queue.durable, vhost.turn.timers
        )
    vhost.slots.put(queue.slot, queue)


def close_queue(vhost: VhostState, queue: Queue) -> None:
    """A queue that nobody can name any more ends."""
    queue.close()
    if queue.deduplication is not None:
        queue.deduplication.close()
    if queue.unacked == 0:
        vhost.slots.release(queue.slot)
