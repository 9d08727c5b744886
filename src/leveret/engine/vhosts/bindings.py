"""The bindings of a vhost, and the removal of exchanges.

A binding belongs to its exchange. `sources` knows for each target which exchanges lead to it, so
that the bindings of a target can be removed with it. An auto-delete exchange is removed with its
last binding, and that may remove further bindings. That is why exchanges are removed here. They are
removed in a loop, because a chain of such exchanges may be longer than the stack is deep.

Invariants: an exchange is in `sources` of a target exactly while it has a binding to it.
`binding_count` is the number of bindings of all exchanges, and `definition_bytes` has their sizes.
"""

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target
from leveret.engine.turns.events import note_binding, note_deleted
from leveret.engine.vhosts.definition_records import (
    encode_binding,
    encode_binding_deletion,
    encode_exchange_deletion,
)
from leveret.engine.vhosts.definition_sizes import definition_bytes
from leveret.engine.vhosts.queue_creation import close_queue
from leveret.engine.vhosts.state import VhostState
from leveret.wire.tables import Table


def add_binding(
    vhost: VhostState, exchange: Exchange, target: Target, routing_key: str, arguments: Table
) -> None:
    """Bind a target to an exchange. A binding that exists stays."""
    is_queue = isinstance(target, Queue)
    binding = Binding(exchange.name, target, is_queue, routing_key, arguments)
    bytes_before = exchange.binding_bytes
    if exchange.add(binding):
        vhost.binding_count += 1
        vhost.definition_bytes += exchange.binding_bytes - bytes_before
        vhost.sources.setdefault(target, {})[exchange.name] = exchange
        vhost.changed()
        if vhost.turn.listens:
            note_binding(vhost.turn, "binding.created", vhost.name, binding)
        if _is_durable(exchange) and _is_durable(target) and not vhost.turn.is_restoring:
            vhost.log(encode_binding(vhost.name, binding))


def remove_binding(
    vhost: VhostState, exchange: Exchange, target: Target, routing_key: str, arguments: Table
) -> None:
    """Undo `add_binding`. A binding that does not exist is no error."""
    bytes_before = exchange.binding_bytes
    if not exchange.remove(target, routing_key, arguments):
        return
    vhost.binding_count -= 1
    vhost.definition_bytes -= bytes_before - exchange.binding_bytes
    vhost.changed()
    undone = Binding(exchange.name, target, isinstance(target, Queue), routing_key, arguments)
    if _is_durable(exchange) and _is_durable(target):
        vhost.log(encode_binding_deletion(vhost.name, undone))
    if vhost.turn.listens:
        note_binding(vhost.turn, "binding.deleted", vhost.name, undone)
    if not exchange.has_bindings_to(target):
        _forget_source(vhost, exchange, target)
    if _is_unused(vhost, exchange):
        remove_exchange(vhost, exchange)


def remove_bindings_to(vhost: VhostState, target: Target) -> None:
    """Remove all bindings to a deleted target, and the exchanges that this leaves unused."""
    _remove_all(vhost, _unbind_from_all(vhost, target))


def remove_exchange(vhost: VhostState, exchange: Exchange) -> None:
    """Remove an exchange with the bindings from it and to it, and exchanges that become unused."""
    _remove_all(vhost, [exchange])


def _remove_all(vhost: VhostState, unused: list[Exchange]) -> None:
    while unused:
        exchange = unused.pop()
        if vhost.exchanges.get(exchange.name) is exchange:
            unused.extend(_remove_one(vhost, exchange))


def _unbind_from_all(vhost: VhostState, target: Target) -> list[Exchange]:
    """Remove all bindings to a target. Return the auto-delete exchanges that have none left."""
    unused: list[Exchange] = []
    for exchange in vhost.sources.pop(target, {}).values():
        if vhost.turn.listens:
            for binding in exchange.bindings_to(target):
                note_binding(vhost.turn, "binding.deleted", vhost.name, binding)
        bytes_before = exchange.binding_bytes
        count = exchange.remove_target(target)
        vhost.binding_count -= count
        vhost.definition_bytes -= bytes_before - exchange.binding_bytes
        vhost.turn.work += count
        if _is_unused(vhost, exchange):
            unused.append(exchange)
    return unused


def _remove_one(vhost: VhostState, exchange: Exchange) -> list[Exchange]:
    """Remove one exchange. Return the auto-delete exchanges that have no binding left."""
    del vhost.exchanges[exchange.name]
    vhost.binding_count -= len(exchange.bindings)
    vhost.definition_bytes -= exchange.binding_bytes + definition_bytes(exchange)
    vhost.retired_counts.published += exchange.published_in
    vhost.changed()
    note_deleted(vhost.turn, "exchange.deleted", vhost.name, exchange.name)
    if exchange.durable:
        vhost.log(encode_exchange_deletion(vhost.name, exchange.name))
    vhost.turn.work += len(exchange.bindings)
    for binding in exchange.bindings.values():
        _forget_source(vhost, exchange, binding.target)
    if exchange.deduplication is not None:
        exchange.deduplication.close()
    holding = vhost.holding.pop(exchange.name, None)
    if holding is not None:
        close_queue(vhost, holding)
    return _unbind_from_all(vhost, exchange)


def _is_unused(vhost: VhostState, exchange: Exchange) -> bool:
    """Return True if an auto-delete exchange has no binding left, and must be removed."""
    if vhost.turn.is_restoring or not exchange.auto_delete or exchange.bindings:
        return False
    return exchange.name in vhost.exchanges


def _forget_source(vhost: VhostState, exchange: Exchange, target: Target) -> None:
    sources = vhost.sources.get(target)
    if sources is not None:
        sources.pop(exchange.name, None)
        if not sources:
            del vhost.sources[target]


def _is_durable(target: Target) -> bool:
    if isinstance(target, Queue):
        return target.durable
    return isinstance(target, Exchange) and target.durable
