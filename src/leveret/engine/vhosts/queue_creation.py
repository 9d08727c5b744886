"""Make the queues and streams of a vhost, and close them.

Callers have checked that no queue of this name exists. A queue gets a slot, by which sessions find
it, and a number, by which the log knows it. Both stay its own until none of its messages is in
flight. The stream of a queue or exchange with `x-remember` is made here too.

Invariant: a durable queue is in the log before any of its messages.
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
from leveret.engine.message import ADDRESS_NAME_BYTES_MAX
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.chronicle import StreamChronicle
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.events import note_queue_created
from leveret.engine.turns.session import Outlet
from leveret.engine.vhosts.definition_records import encode_queue
from leveret.engine.vhosts.definition_sizes import definition_bytes
from leveret.engine.vhosts.names import require_not_reserved
from leveret.engine.vhosts.state import VhostState
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Table, field_of

PARKED: Final = (
    "leveret.parked"  # messages over their delivery limit, in a cycle, or stopped by a fault
)


def make_queue(
    vhost: VhostState,
    name: str,
    *,
    durable: bool,
    arguments: Table,
    auto_delete: bool = False,
    owner: Outlet | None = None,
) -> Queue:
    """Make a queue or a stream, as its arguments say. Raise an error if they are not valid."""
    settings = queue_settings(
        name,
        vhost.name,
        durable=durable,
        exclusive=owner is not None,
        auto_delete=auto_delete,
        arguments=arguments,
    )
    if not vhost.turn.is_restoring:  # a queue of an older version must be there after a start
        _require_usable_dead_letter_key(vhost, name, settings)
    if settings.kind == STREAM:
        queue: Queue = _new_stream(vhost, name, settings, arguments)
    else:
        chronicle = open_chronicle(vhost, f"queue '{name}'", arguments)
        queue = _new_queue(
            vhost,
            name,
            settings,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
            arguments=arguments,
        )
        queue.chronicle = add_tracing(chronicle, vhost.turn.traced_messages)
    try:
        _publish_queue(vhost, queue)
    except Exception:  # a queue that the log does not know would lose its messages with the node
        vhost.queues.pop(name, None)
        vhost.targets.pop(name, None)
        vhost.definition_bytes -= definition_bytes(queue)
        if owner is not None:
            owner.exclusive_queues.pop(name, None)
        close_queue(vhost, queue)
        raise
    return queue


def _publish_queue(vhost: VhostState, queue: Queue) -> None:
    """Make a new queue known to clients, policies, observers and the log."""
    name = queue.name
    owner = queue.owner
    vhost.queues[name] = queue
    vhost.targets[name] = queue
    vhost.definition_bytes += definition_bytes(queue)
    vhost.turn.churn.queues_created += 1
    vhost.changed()
    if vhost.enforcer is not None and not vhost.turn.is_restoring:
        vhost.enforcer.apply(queue)
    if owner is not None:
        owner.exclusive_queues[name] = queue
    if vhost.turn.listens:
        is_own = owner is not None
        note_queue_created(
            vhost.turn,
            vhost.name,
            name,
            kind=queue.settings.kind,
            durable=queue.durable,
            auto_delete=queue.auto_delete,
            exclusive=is_own,
            arguments=queue.arguments,
        )
    if queue.durable and not vhost.turn.is_restoring:
        vhost.log(encode_queue(queue))


def _require_usable_dead_letter_key(vhost: VhostState, name: str, settings: QueueSettings) -> None:
    """Raise PreconditionFailedError if no message could be published with the routing key."""
    key = settings.dead_letter_key
    if key is not None and len(key.encode("utf-8", "surrogateescape")) > ADDRESS_NAME_BYTES_MAX:
        raise PreconditionFailedError(
            f"invalid arg 'x-dead-letter-routing-key' for queue '{name}' in vhost '{vhost.name}': "
            f"a routing key has at most {ADDRESS_NAME_BYTES_MAX} bytes"
        )


def add_holding_queue(vhost: VhostState, exchange: Exchange) -> None:
    """Add the queue in which a delayed exchange holds messages. Clients cannot name it."""
    settings = queue_settings(
        exchange.name,
        vhost.name,
        durable=exchange.durable,
        exclusive=False,
        auto_delete=False,
        arguments={},
    )
    holding = _new_queue(
        vhost,
        exchange.name,
        settings,
        durable=exchange.durable,
        auto_delete=False,
        owner=None,
        arguments={},
    )
    holding.holds_for = exchange.name
    vhost.holding[exchange.name] = holding


def ensure_parked_queue(vhost: VhostState) -> Queue:
    """Return the queue for parked messages. Make it if it does not exist."""
    found = vhost.queues.get(PARKED)
    return found if found is not None else make_queue(vhost, PARKED, durable=True, arguments={})


def open_chronicle(vhost: VhostState, what: str, arguments: Table) -> Chronicle | None:
    """Return the chronicle for `x-remember`, if it is set. Make its stream if needed."""
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
        make_queue(vhost, name, durable=True, arguments={"x-queue-type": field_of(STREAM)})
    return StreamChronicle(vhost.queues, name)


def _new_queue(
    vhost: VhostState,
    name: str,
    settings: QueueSettings,
    *,
    durable: bool,
    auto_delete: bool,
    owner: Outlet | None,
    arguments: Table,
) -> Queue:
    slot = vhost.slots.take()
    queue = Queue(
        vhost.name,
        name,
        slot,
        settings,
        durable=durable,
        auto_delete=auto_delete,
        owner=owner,
        arguments=arguments,
        turn=vhost.turn,
    )
    _register(vhost, queue)
    return queue


def _new_stream(vhost: VhostState, name: str, settings: QueueSettings, arguments: Table) -> Stream:
    slot = vhost.slots.take()
    stream = Stream(vhost.name, name, slot, settings, arguments, vhost.turn)
    stream.cursors.room = vhost.cursor_room
    _register(vhost, stream)
    if vhost.segment_store is not None:
        stream.open(vhost.segment_store.open(stream.ledger.id))
    return stream


def _register(vhost: VhostState, queue: Queue) -> None:
    """Give a new queue its number, and put it into its slot."""
    queue.ledger.id = vhost.slots.new_id()
    settings = queue.settings.deduplication
    if settings is not None:
        queue.deduplication = Deduplication(
            settings, queue.ledger.id, queue.durable, vhost.turn.timers, vhost.key_room
        )
    vhost.slots.put(queue.slot, queue)


def close_queue(vhost: VhostState, queue: Queue) -> None:
    """Close a queue that has been removed from all tables of names."""
    queue.close()
    if queue.deduplication is not None:
        queue.deduplication.close()
    if queue.unacked == 0:
        vhost.slots.release(queue.slot)
