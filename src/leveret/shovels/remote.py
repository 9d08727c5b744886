"""Ends of a shovel at a broker that is reached over AMQP 0-9-1, whoever made it."""

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
from leveret.amqp.writer import Writer
from leveret.amqp_client.client import AmqpClient, ClientListener, Delivery
from leveret.amqp_client.uri import AmqpUri
from leveret.errors import ClosedByPeerError, ClosedError
from leveret.shovels.ends import Carrier, Source, Target
from leveret.shovels.settings import NO_ACK, ON_CONFIRM, ShovelSettings
from leveret.wire.tables import Table, table_of

INBOX_MAX: Final = 1000  # deliveries that are not passed on yet before no more are read

_PASSIVE: Final = 1
_DURABLE: Final = 2
_EXCLUSIVE: Final = 4
_NO_ACK: Final = 2
_MULTIPLE: Final = 1
_REQUEUE: Final = 2
_NOT_FOUND: Final = 404


class RemoteSource(Source, ClientListener):
    """Consumes from a broker."""

    def __init__(self, settings: ShovelSettings, uri: AmqpUri, name: str) -> None:
        self._settings = settings
        self._uri = uri
        self._name = name
        self._waiting = 0  # deliveries that are not passed on

    async def open(self, carrier: Carrier) -> None:
        self._carrier = carrier
        settings = self._settings
        self._client = AmqpClient(self._uri, self._name, self)
        await self._client.connect()
        if settings.src_queue is not None:
            arguments = table_of(settings.src_queue_args)
            queue = settings.src_queue
            self.length = await ensure_queue(
                self._client, queue, arguments, settings.src_predeclared
            )
        else:
            queue = await self._bind_queue()
        is_no_ack = settings.ack_mode == NO_ACK
        if not is_no_ack:
            qos = Writer(BASIC_QOS).long(0).short(settings.prefetch).octet(0)
            await self._client.call(qos, BASIC_QOS_OK)
        consume = Writer(BASIC_CONSUME).short(0).short_string(queue).short_string("")
        consume.octet(_NO_ACK if is_no_ack else 0).table(table_of(settings.src_consumer_args))
        await self._client.call(consume, BASIC_CONSUME_OK)

    async def _bind_queue(self) -> str:
        """A queue of our own that gets what the exchange routes."""
        exchange = self._settings.src_exchange
        assert exchange is not None
        declare = Writer(QUEUE_DECLARE).short(0).short_string("").octet(_EXCLUSIVE).table({})
        queue = (await self._client.call(declare, QUEUE_DECLARE_OK)).short_string()
        bind = Writer(QUEUE_BIND).short(0).short_string(queue).short_string(exchange)
        bind.short_string(self._settings.src_key).octet(0).table({})
        await self._client.call(bind, QUEUE_BIND_OK)
        return queue

    def settle(self, done: Sequence[int], again: Sequence[int], never: Sequence[int]) -> None:
        for tag in done:
            self._client.send(Writer(BASIC_ACK).longlong(tag).octet(0))
        for tag in again:
            self._client.send(Writer(BASIC_NACK).longlong(tag).octet(_REQUEUE))
        for tag in never:
            self._client.send(Writer(BASIC_NACK).longlong(tag).octet(0))

    def more(self) -> None:
        if self._waiting >= INBOX_MAX:
            self._client.resume()
        self._waiting = 0

    async def close(self) -> None:
        if hasattr(self, "_client"):
            await self._client.close()

    def on_delivery(self, delivery: Delivery) -> None:
        self._waiting += 1
        if self._waiting == INBOX_MAX:
            self._client.pause()
        self._carrier.on_delivery(delivery)

    def on_lost(self, fault: Exception) -> None:
        self._carrier.on_lost(fault)


class RemoteTarget(Target, ClientListener):
    """Publishes to a broker."""

    def __init__(self, settings: ShovelSettings, uri: AmqpUri, name: str) -> None:
        self._settings = settings
        self._uri = uri
        self._name = name
        self._seq = 0
        self._unconfirmed: dict[int, Delivery] = {}
        self._returned: set[int] = set()  # of those, what reached nobody
        self._room = asyncio.Event()
        self._is_confirming = settings.ack_mode == ON_CONFIRM

    async def open(self, carrier: Carrier) -> None:
        self._carrier = carrier
        settings = self._settings
        self._client = AmqpClient(self._uri, self._name, self)
        await self._client.connect()
        if settings.dest_queue is not None:
            arguments = table_of(settings.dest_queue_args)
            await ensure_queue(
                self._client, settings.dest_queue, arguments, settings.dest_predeclared
            )
        elif settings.dest_exchange:
            declare = Writer(EXCHANGE_DECLARE).short(0).short_string(settings.dest_exchange)
            declare.short_string("direct").octet(_PASSIVE).table({})
            await self._client.call(declare, EXCHANGE_DECLARE_OK)
        if self._is_confirming:
            await self._client.call(Writer(CONFIRM_SELECT).octet(0), CONFIRM_SELECT_OK)

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        settings = self._settings
        for delivery in deliveries:
            while not self._client.is_writable:
                self._room.clear()
                await self._room.wait()
            if self._client.is_lost:
                raise ClosedError("the connection was lost")
            exchange, key = address_of(settings, delivery)
            if self._is_confirming:
                self._seq += 1
                self._unconfirmed[self._seq] = delivery
            is_mandatory = self._is_confirming and settings.dest_queue is not None
            self._client.publish(exchange, key, delivery.header, delivery.body, is_mandatory)
            if not self._is_confirming:
                self._carrier.on_done(delivery.tag)

    async def close(self) -> None:
        if hasattr(self, "_client"):
            await self._client.close()

    def on_writable(self) -> None:
        self._room.set()

    def on_returned(self, body: bytes) -> None:
        """Nobody takes it. Returns come in order, each before its confirm."""
        for seq, delivery in self._unconfirmed.items():
            if delivery.body == body and seq not in self._returned:
                self._returned.add(seq)
                return

    def on_confirm(self, seq: int, multiple: bool, is_acked: bool) -> None:
        seqs = [seq]
        if multiple:  # 0 stands for all
            seqs = [one for one in self._unconfirmed if one <= seq or seq == 0]
        for one in seqs:
            delivery = self._unconfirmed.pop(one, None)
            if delivery is None:
                continue
            if is_acked and one not in self._returned:
                self._carrier.on_done(delivery.tag)
            else:
                self._returned.discard(one)
                self._carrier.on_refused(delivery.tag, again=True)

    def on_lost(self, fault: Exception) -> None:
        self._room.set()
        self._carrier.on_lost(fault)


def address_of(settings: ShovelSettings, delivery: Delivery) -> tuple[str, str]:
    """Exchange and key that a message is published with. RabbitMQ: its own where none is given."""
    if settings.dest_queue is not None:
        return "", settings.dest_queue
    exchange = settings.dest_exchange if settings.dest_exchange is not None else delivery.exchange
    return exchange, settings.dest_key if settings.dest_key is not None else delivery.routing_key


async def ensure_queue(
    client: AmqpClient, queue: str, arguments: Table, is_predeclared: bool
) -> int:
    """Make sure that a queue is there, as whoever made it wanted; how many messages it has."""
    passive = Writer(QUEUE_DECLARE).short(0).short_string(queue).octet(_PASSIVE).table({})
    try:
        answer = await client.call(passive, QUEUE_DECLARE_OK)
    except ClosedByPeerError as fault:
        if fault.code != _NOT_FOUND or is_predeclared:
            raise
        await client.open_channel()
        declare = Writer(QUEUE_DECLARE).short(0).short_string(queue).octet(_DURABLE)
        answer = await client.call(declare.table(arguments), QUEUE_DECLARE_OK)
    answer.short_string()
    return answer.long()
