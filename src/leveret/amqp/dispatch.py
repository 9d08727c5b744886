"""The table of handlers for all methods that a client may send on an open channel."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.amqp.channel import Channel
from leveret.amqp.handlers import basic, confirm, exchange, queue
from leveret.amqp.handlers import channel as channel_class
from leveret.amqp.methods import (
    ACCESS_REQUEST,
    BASIC_ACK,
    BASIC_CANCEL,
    BASIC_CANCEL_OK,
    BASIC_CONSUME,
    BASIC_GET,
    BASIC_NACK,
    BASIC_QOS,
    BASIC_RECOVER,
    BASIC_RECOVER_ASYNC,
    BASIC_REJECT,
    CHANNEL_FLOW,
    CONFIRM_SELECT,
    DEFINITION_WORK,
    EXCHANGE_BIND,
    EXCHANGE_CLASS,
    EXCHANGE_DECLARE,
    EXCHANGE_DELETE,
    EXCHANGE_UNBIND,
    METHOD_WORK,
    OTHER_METHODS,
    QUEUE_BIND,
    QUEUE_CLASS,
    QUEUE_DECLARE,
    QUEUE_DELETE,
    QUEUE_PURGE,
    QUEUE_UNBIND,
    TX_COMMIT,
    TX_ROLLBACK,
    TX_SELECT,
)
from leveret.amqp.reader import MethodReader
from leveret.errors import CommandInvalidError

HANDLERS: Final[dict[int, Callable[[Channel, MethodReader], None]]] = {
    ACCESS_REQUEST: channel_class.on_access_request,
    CHANNEL_FLOW: channel_class.on_flow,
    EXCHANGE_DECLARE: exchange.on_declare,
    EXCHANGE_DELETE: exchange.on_delete,
    EXCHANGE_BIND: exchange.on_bind,
    EXCHANGE_UNBIND: exchange.on_unbind,
    QUEUE_DECLARE: queue.on_declare,
    QUEUE_BIND: queue.on_bind,
    QUEUE_UNBIND: queue.on_unbind,
    QUEUE_PURGE: queue.on_purge,
    QUEUE_DELETE: queue.on_delete,
    BASIC_QOS: basic.on_qos,
    BASIC_CONSUME: basic.on_consume,
    BASIC_CANCEL: basic.on_cancel,
    BASIC_CANCEL_OK: basic.on_cancel_ok,
    BASIC_GET: basic.on_get,
    BASIC_ACK: basic.on_ack,
    BASIC_REJECT: basic.on_reject,
    BASIC_NACK: basic.on_nack,
    BASIC_RECOVER: basic.on_recover,
    BASIC_RECOVER_ASYNC: basic.on_recover_async,
    CONFIRM_SELECT: confirm.on_confirm_select,
    TX_SELECT: confirm.on_tx_select,
    TX_COMMIT: confirm.on_tx_commit,
    TX_ROLLBACK: confirm.on_tx_rollback,
}


def dispatch(channel: Channel, method: i64, reader: MethodReader) -> None:
    """Call the handler of a method. Raise CommandInvalidError if it has none.

    Its work counts to the turn, so that a flood of methods does not keep the loop from other
    clients.
    """
    kind = method >> 16
    is_definition = kind == EXCHANGE_CLASS or kind == QUEUE_CLASS
    channel.turn.work += DEFINITION_WORK if is_definition else METHOD_WORK
    handler = HANDLERS.get(method)
    if handler is None:
        if method in OTHER_METHODS:
            raise CommandInvalidError("unimplemented method")
        raise CommandInvalidError(f"unknown method {method >> 16}.{method & 0xFFFF}")
    handler(channel, reader)
