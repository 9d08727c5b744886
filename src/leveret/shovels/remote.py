"""The ends of a shovel at another broker, over AMQP 0-9-1."""

import asyncio
from collections.abc import Sequence
from typing import Final

from leveret.amqp.methods import (
    BASIC_ACK,
    BASIC_CONSUME,
    BASIC_CONSUME_OK,
    BASIC_NACK,
    BASIC_QOS,
    BASIC_QOS_OK,
    CONFIRM_SELECT,
    CONFIRM_SELECT_OK,
    EXCHANGE_DECLARE,
    EXCHANGE_DECLARE_OK,
    QUEUE_BIND,
    QUEUE_BIND_OK,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
)
from leveret.amqp.writer import MethodWriter
from leveret.amqp_client.client import AmqpClient, ClientListener, Delivery
from leveret.amqp_client.uri import AmqpUri
from leveret.errors import ClosedByPeerError, ClosedError
from leveret.shovels.interfaces import ShovelListener, ShovelSource, ShovelTarget
from leveret.shovels.settings import NO_ACK, ON_CONFIRM, ShovelSettings
from leveret.shovels.targets import TargetCheck
from leveret.wire.tables import Table, table_of

INBOX_MAX: Final = 1000  # deliveries not passed on yet; then reading pauses
INBOX_BYTES_MAX: Final = 16 << 20  # of their bodies: a peer may ignore the prefetch count

_PASSIVE: Final = 1
QUEUE_DURABLE: Final = 2  # flags of queue.declare
QUEUE_AUTO_DELETE: Final = 8
_EXCLUSIVE: Final = 4
_NO_ACK: Final = 2
_MULTIPLE: Final = 1
_REQUEUE: Final = 2
_NOT_FOUND: Final = 404


class RemoteSource(ShovelSource, ClientListener):
    """Consumes from another broker."""

    def __init__(
        self, settings: ShovelSettings, uri: AmqpUri, name: str, check: TargetCheck
    ) -> None:
        self._settings = settings
        self._check = check
        self._uri = uri
        self._name = name
        self._waiting = 0  # deliveries not passed on yet
        self._waiting_bytes = 0

    async def open(self, listener: ShovelListener) -> None:
        settings = self._settings
        await self._connect(listener)
        if settings.src_queue is not None:
            arguments = table_of(settings.src_queue_args)
            queue = settings.src_queue
            self.length = await ensure_queue(
                self._client, queue, arguments, is_predeclared=settings.src_predeclared
            )
        else:
            queue = await self._bind_queue()
        await self._set_prefetch()
        await self._consume(queue)

    async def _connect(self, listener: ShovelListener) -> None:
        self._listener = listener
        self._check.require_files(self._uri)
        self._client = AmqpClient(self._uri, self._name, self, self._check.resolve)
        await self._client.connect()

    async def _set_prefetch(self) -> None:
        if self._settings.ack_mode != NO_ACK:
            qos = MethodWriter(BASIC_QOS).long(0).short(self._settings.prefetch).octet(0)
            await self._client.call(qos, BASIC_QOS_OK)

    async def _consume(self, queue: str) -> None:
        consume = MethodWriter(BASIC_CONSUME).short(0).short_string(queue).short_string("")
        consume.octet(_NO_ACK if self._settings.ack_mode == NO_ACK else 0)
        consume.table(table_of(self._settings.src_consumer_args))
        await self._client.call(consume, BASIC_CONSUME_OK)

    async def _bind_queue(self) -> str:
        """Declare an exclusive queue, bind it to the source exchange, and return its name."""
        exchange = self._settings.src_exchange
        assert exchange is not None
        declare = MethodWriter(QUEUE_DECLARE).short(0).short_string("").octet(_EXCLUSIVE).table({})
        queue = (await self._client.call(declare, QUEUE_DECLARE_OK)).short_string()
        bind = MethodWriter(QUEUE_BIND).short(0).short_string(queue).short_string(exchange)
        bind.short_string(self._settings.src_key).octet(0).table({})
        await self._client.call(bind, QUEUE_BIND_OK)
        return queue

    def settle(
        self, acked: Sequence[int], requeued: Sequence[int], rejected: Sequence[int]
    ) -> None:
        for tag in acked:
            self._client.send(MethodWriter(BASIC_ACK).longlong(tag).octet(0))
        for tag in requeued:
            self._client.send(MethodWriter(BASIC_NACK).longlong(tag).octet(_REQUEUE))
        for tag in rejected:
            self._client.send(MethodWriter(BASIC_NACK).longlong(tag).octet(0))

    def request_more(self) -> None:
        if self._is_full():
            self._client.resume()
        self._waiting = 0
        self._waiting_bytes = 0

    def _is_full(self) -> bool:
        return self._waiting >= INBOX_MAX or self._waiting_bytes >= INBOX_BYTES_MAX

    def recheck(self) -> None:
        self._check.require(self._uri)

    async def close(self) -> None:
        if hasattr(self, "_client"):
            await self._client.close()

    def on_delivery(self, delivery: Delivery) -> None:
        self._waiting += 1
        self._waiting_bytes += len(delivery.body)
        if self._is_full():
            self._client.pause()
        self._listener.on_delivery(delivery)

    def on_lost(self, fault: Exception) -> None:
        self._listener.on_lost(fault)


class RemoteTarget(ShovelTarget, ClientListener):
    """Publishes to another broker."""

    def __init__(
        self, settings: ShovelSettings, uri: AmqpUri, name: str, check: TargetCheck
    ) -> None:
        self._settings = settings
        self._check = check
        self._uri = uri
        self._name = name
        self._seq = 0
        self._unconfirmed: dict[int, Delivery] = {}
        self._returned: set[int] = set()  # unconfirmed numbers that reached no queue
        self._writable = asyncio.Event()
        self._is_confirming = settings.ack_mode == ON_CONFIRM

    async def open(self, listener: ShovelListener) -> None:
        self._listener = listener
        settings = self._settings
        self._check.require_files(self._uri)
        self._client = AmqpClient(self._uri, self._name, self, self._check.resolve)
        await self._client.connect()
        if settings.dest_queue is not None:
            arguments = table_of(settings.dest_queue_args)
            await ensure_queue(
                self._client,
                settings.dest_queue,
                arguments,
                is_predeclared=settings.dest_predeclared,
            )
        elif settings.dest_exchange:
            declare = MethodWriter(EXCHANGE_DECLARE).short(0).short_string(settings.dest_exchange)
            declare.short_string("direct").octet(_PASSIVE).table({})
            await self._client.call(declare, EXCHANGE_DECLARE_OK)
        if self._is_confirming:
            await self._client.call(MethodWriter(CONFIRM_SELECT).octet(0), CONFIRM_SELECT_OK)

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        settings = self._settings
        for delivery in deliveries:
            while not self._client.is_writable:
                self._writable.clear()
                await self._writable.wait()
            if self._client.is_lost:
                raise ClosedError("the connection was lost")
            exchange, key = publish_address(settings, delivery)
            if self._is_confirming:
                self._seq += 1
                self._unconfirmed[self._seq] = delivery
            is_mandatory = self._is_confirming and settings.dest_queue is not None
            self._client.publish(exchange, key, delivery.header, delivery.body, is_mandatory)
            if not self._is_confirming:
                self._listener.on_accepted(delivery.tag)

    def recheck(self) -> None:
        self._check.require(self._uri)

    async def close(self) -> None:
        if hasattr(self, "_client"):
            await self._client.close()

    def on_writable(self) -> None:
        self._writable.set()

    def on_returned(self, body: bytes) -> None:
        """Note which publish reached no queue. Returns come in order, each before its confirm."""
        for seq, delivery in self._unconfirmed.items():
            if delivery.body == body and seq not in self._returned:
                self._returned.add(seq)
                return

    def on_confirm(self, seq: int, multiple: bool, is_acked: bool) -> None:
        seqs = [seq]
        if multiple:  # 0 means all
            seqs = [one for one in self._unconfirmed if one <= seq or seq == 0]
        for one in seqs:
            delivery = self._unconfirmed.pop(one, None)
            if delivery is None:
                continue
            if is_acked and one not in self._returned:
                self._listener.on_accepted(delivery.tag)
            else:
                self._returned.discard(one)
                self._listener.on_refused(delivery.tag, retry=True)

    def on_lost(self, fault: Exception) -> None:
        self._writable.set()
        self._listener.on_lost(fault)


def publish_address(settings: ShovelSettings, delivery: Delivery) -> tuple[str, str]:
    """Return exchange and routing key of a publish. RabbitMQ: the message's own are the default."""
    if settings.dest_queue is not None:
        return "", settings.dest_queue
    exchange = settings.dest_exchange if settings.dest_exchange is not None else delivery.exchange
    return exchange, settings.dest_key if settings.dest_key is not None else delivery.routing_key


async def ensure_queue(
    client: AmqpClient,
    queue: str,
    arguments: Table,
    *,
    is_predeclared: bool = False,
    flags: int = QUEUE_DURABLE,
) -> int:
    """Declare a queue unless it exists, and return its number of messages.

    A missing queue that should be predeclared raises ClosedByPeerError.
    """
    passive = MethodWriter(QUEUE_DECLARE).short(0).short_string(queue).octet(_PASSIVE).table({})
    try:
        answer = await client.call(passive, QUEUE_DECLARE_OK)
    except ClosedByPeerError as fault:
        if fault.code != _NOT_FOUND or is_predeclared:
            raise
        await client.open_channel()
        declare = MethodWriter(QUEUE_DECLARE).short(0).short_string(queue).octet(flags)
        answer = await client.call(declare.table(arguments), QUEUE_DECLARE_OK)
    answer.short_string()
    return answer.long()
