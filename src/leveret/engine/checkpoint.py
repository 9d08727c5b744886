"""Encode the state of a broker, without its messages, as records of a checkpoint."""

from leveret.engine.broker import FIRST_VHOST, Broker
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.vhosts.definition_records import (
    encode_binding,
    encode_entry,
    encode_exchange,
    encode_last_id,
    encode_queue,
    encode_vhost,
    encode_vhost_deletion,
)
from leveret.engine.vhosts.vhost import Vhost
from leveret.journal.journal import Journal


def checkpoint_records(broker: Broker, last_block: int) -> list[bytes]:
    """Return the definitions of all vhosts, and the state of every durable queue."""
    journal = Journal()
    journal.write_block_number(last_block)
    journal.write_definition(encode_last_id(broker.slots.last_id))
    for kind in broker.register.kinds():
        for key, value in broker.register.entries(kind).items():
            journal.write_definition(encode_entry(kind, key, value))
    if FIRST_VHOST not in broker.vhosts:
        journal.write_definition(encode_vhost_deletion(FIRST_VHOST))
    for vhost in broker.vhosts.values():
        _write_vhost(journal, vhost)
    for queue in broker.slots.queues:
        if queue is not None and queue.durable and not queue.deleted:
            if isinstance(queue, Stream):
                _write_stream(journal, queue)
            else:
                _write_queue(journal, queue)
            if queue.deduplication is not None:
                queue.deduplication.write(journal)
    return journal.take_block()


def _write_vhost(journal: Journal, vhost: Vhost) -> None:
    journal.write_definition(encode_vhost(vhost.name))
    durable = [e for e in vhost.exchanges.values() if e.durable and not _is_own(e)]
    for exchange in durable:
        holding = vhost.holding.get(exchange.name)
        number = int(holding.ledger.id) if holding is not None else 0
        journal.write_definition(encode_exchange(vhost.name, exchange, number))
        if exchange.deduplication is not None:
            exchange.deduplication.write(journal)
    for queue in vhost.queues.values():
        if queue.durable:
            journal.write_definition(encode_queue(queue))
    for exchange in vhost.exchanges.values():
        if exchange.durable:
            for binding in exchange.bindings.values():
                target = binding.target
                if isinstance(target, Queue) and target.durable:
                    journal.write_definition(encode_binding(vhost.name, binding))
                elif isinstance(target, Exchange) and target.durable:
                    journal.write_definition(encode_binding(vhost.name, binding))


def _is_own(exchange: Exchange) -> bool:
    """Return True for an exchange that every vhost has, without settings of its own."""
    is_given = not exchange.name or exchange.name.startswith("amq.")
    return is_given and exchange.deduplication_id == 0


def _write_stream(journal: Journal, stream: Stream) -> None:
    journal.write_stream(stream.writer, stream.first_offset)
    for name, offset in stream.cursors.cursors.items():
        journal.write_cursor(stream.ledger.id, offset, name.encode("utf-8", "surrogateescape"))


def _write_queue(journal: Journal, queue: Queue) -> None:
    runs: list[int] = []
    if queue.ledger.settled.floor > 0:
        runs.append(0)
        runs.append(queue.ledger.settled.floor - 1)
    for first, last in queue.ledger.settled.runs():
        runs.append(first)
        runs.append(last)
    journal.write_gone(queue.ledger.id, runs)
    journal.write_mark(queue.ledger.id, queue.ledger.delivered_seq)
    if queue.ready.count + queue.unacked != 0:
        oldest = 0 if queue.unacked != 0 else queue.ready.oldest_rank()
        marks = queue.arrival_times.kept(oldest)
        if marks:
            journal.write_came(queue.ledger.id, marks)
    for seq, (returns, failures, due_ms) in queue.ledger.returned.items():
        journal.write_returned(queue.ledger.id, seq, returns, failures, due_ms)
