"""Applies a topology to a broker: everything is declared again, and what is there stays.

A redeclare with the same arguments changes nothing, so a topology that another program set up is
taken as it is. Where this user may not configure, what is there is looked up instead. Where it is
there with other arguments the topology would not do what it says: that raises.
"""

from typing import Final

import aiormq
import aiormq.abc

from leveret.bus.connections.connection import BrokerConnection
from leveret.bus.errors import (
    TopologyMismatchError,
)
from leveret.bus.topology import DEFAULT_EXCHANGE, Binding, Exchange, Queue, Topology

_MISSING: Final = "is missing, and this user may not declare it"


async def declare(connection: BrokerConnection, topology: Topology) -> None:
    """Make the broker have the whole topology. Raises TopologyMismatchError."""
    work = _Declaring(connection)
    for exchange in topology.exchanges:
        await work.exchange(exchange)
    for queue in topology.queues:
        await work.queue(queue)
    for binding in topology.bindings:
        await work.bind(binding)
    await work.close()


class _Declaring:
    """A channel for declaring; a refusal closes it, and the next step opens a new one."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._channel: aiormq.abc.AbstractChannel | None = None

    async def exchange(self, exchange: Exchange) -> None:
        assert exchange.name != DEFAULT_EXCHANGE
        try:
            await self._declare_exchange(exchange, passive=False)
        except aiormq.exceptions.ChannelPreconditionFailed as fault:
            raise TopologyMismatchError(f"the exchange {exchange.name}: {fault}") from fault
        except aiormq.exceptions.ChannelAccessRefused:
            await self._look_up_exchange(exchange)

    async def _look_up_exchange(self, exchange: Exchange) -> None:
        try:
            await self._declare_exchange(exchange, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity as fault:
            raise TopologyMismatchError(f"the exchange {exchange.name} {_MISSING}") from fault

    async def _declare_exchange(self, exchange: Exchange, *, passive: bool) -> None:
        channel = await self._open()
        call = channel.exchange_declare(
            exchange.name,
            exchange_type=str(exchange.type),
            passive=passive,
            durable=True,
            arguments=dict(exchange.arguments),
        )
        await self._connection.ask(call)

    async def queue(self, queue: Queue) -> None:
        try:
            await self._declare_queue(queue, passive=False)
        except aiormq.exceptions.ChannelPreconditionFailed as fault:
            raise TopologyMismatchError(f"the queue {queue.name}: {fault}") from fault
        except aiormq.exceptions.ChannelAccessRefused:
            await self._look_up_queue(queue)

    async def _look_up_queue(self, queue: Queue) -> None:
        try:
            await self._declare_queue(queue, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity as fault:
            raise TopologyMismatchError(f"the queue {queue.name} {_MISSING}") from fault

    async def _declare_queue(self, queue: Queue, *, passive: bool) -> None:
        channel = await self._open()
        call = channel.queue_declare(
            queue.name, passive=passive, durable=True, arguments=dict(queue.arguments)
        )
        await self._connection.ask(call)

    async def bind(self, binding: Binding) -> None:
        channel = await self._open()
        call = channel.queue_bind(binding.queue, binding.exchange, binding.routing_key)
        try:
            await self._connection.ask(call)
        except aiormq.exceptions.ChannelAccessRefused:
            # Whoever may declare it has bound it; a binding cannot be looked up over AMQP.
            self._channel = None

    async def _open(self) -> aiormq.abc.AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._connection.channel()
        return self._channel

    async def close(self) -> None:
        if self._channel is not None and not self._channel.is_closed:
            await self._connection.ask(self._channel.close())
