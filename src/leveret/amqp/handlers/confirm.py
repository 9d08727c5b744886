"""Handlers of the classes confirm and tx: publisher confirms and transactions.

In a transaction, publishes and settlements wait for the commit. The commit carries them out in one
turn of the engine, publishes first. The answer to a commit, and every later answer, waits until the
log is synced. The number of steps in a commit is limited, and so are the bytes of its copies in
streams. Both are counted before the first step.
"""

from mypy_extensions import i64

from leveret.amqp.channel import Channel, PendingPublish
from leveret.amqp.methods import (
    CONFIRM_SELECT_OK,
    TX_COMMIT_OK,
    TX_ROLLBACK_OK,
    TX_SELECT_OK,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter
from leveret.engine.commands.publishing import bytes_in_streams, publish_work
from leveret.engine.commands.settling import ack_taken, reject_taken
from leveret.engine.commands.stream_copies import CHECKED_BYTES, require_copies
from leveret.errors import PreconditionFailedError


def on_confirm_select(channel: Channel, reader: MethodReader) -> None:
    no_wait = reader.bit()
    reader.finish()
    if channel.transactional:
        raise PreconditionFailedError("cannot switch from tx to confirm mode")
    channel.confirming = True
    if not no_wait:
        channel.reply(MethodWriter(CONFIRM_SELECT_OK))


def on_tx_select(channel: Channel, reader: MethodReader) -> None:
    reader.finish()
    if channel.confirming:
        raise PreconditionFailedError("cannot switch from confirm to tx mode")
    channel.transactional = True
    channel.reply(MethodWriter(TX_SELECT_OK))


def on_tx_commit(channel: Channel, reader: MethodReader) -> None:
    reader.finish()
    _require_tx(channel)
    _require_size(channel)
    publishes = channel.tx_publishes
    settles = channel.tx_settles
    channel.end_transaction()
    accepted = True
    for waiting in publishes:
        if not _publish(channel, waiting):
            accepted = False
    slots = channel.connection.front.broker.slots
    for settle in settles:
        if settle.is_ack:
            channel.acked += len(settle.messages)
            ack_taken(slots, settle.messages)
        else:
            reject_taken(slots, settle.messages, requeue=settle.requeue, failed=settle.failed)
    if not accepted:
        raise PreconditionFailedError("partial tx completion")
    if publishes or settles:
        channel.connection.hold_output()
    channel.reply(MethodWriter(TX_COMMIT_OK))


def _require_size(channel: Channel) -> None:
    """Raise PreconditionFailedError if the publishes would make too many or too large copies."""
    vhost = channel.vhost
    steps = channel.tx_steps
    is_large = sum([len(waiting.body) for waiting in channel.tx_publishes]) > CHECKED_BYTES
    written: i64 = 0
    for waiting in channel.tx_publishes:
        if waiting.route.exchange.name in vhost.exchanges:
            steps += publish_work(vhost, waiting.route, waiting.content)
            channel.require_steps(steps)
            if is_large:
                route, size = waiting.route, len(waiting.body)
                written += bytes_in_streams(vhost, route, waiting.content, size)
                require_copies(written)


def _publish(channel: Channel, waiting: PendingPublish) -> bool:
    """Publish a message of the transaction. If its exchange was deleted, it is unroutable."""
    name = waiting.route.exchange.name
    if name not in channel.vhost.exchanges:
        channel.return_unrouted(waiting.route, waiting.content, waiting.body)
        return True
    return channel.publish_now(waiting.route, waiting.content, waiting.body)


def on_tx_rollback(channel: Channel, reader: MethodReader) -> None:
    """Drop the publishes and settlements of the transaction; deliveries stay in flight."""
    reader.finish()
    _require_tx(channel)
    channel.roll_back()
    channel.reply(MethodWriter(TX_ROLLBACK_OK))


def _require_tx(channel: Channel) -> None:
    if not channel.transactional:
        raise PreconditionFailedError("channel is not transactional")
