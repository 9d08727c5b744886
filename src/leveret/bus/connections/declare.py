"""Declare a topology at a broker.

Declaring again with the same arguments changes nothing, so a topology that another program set up
is accepted. If the user has no configure permission, the declare becomes a passive one. If an
exchange or queue exists with other arguments, TopologyMismatchError is raised, because messages
would not take the way that the topology promises.
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


async def declare_topology(connection: BrokerConnection, topology: Topology) -> None:
    """Declare the whole topology. Raise TopologyMismatchError."""
    declarer = _Declarer(connection)
    for exchange in topology.exchanges:
        await declarer.exchange(exchange)
    for queue in topology.queues:
        await declarer.queue(queue)
    for binding in topology.bindings:
        await declarer.bind(binding)
    await declarer.close()


class _Declarer:
    """Declares on one channel; if the broker closes it, the next step opens another."""

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
        await self._connection.call(call)

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
        await self._connection.call(call)

    async def bind(self, binding: Binding) -> None:
        channel = await self._open()
        call = channel.queue_bind(binding.queue, binding.exchange, binding.routing_key)
        try:
            await self._connection.call(call)
        except aiormq.exceptions.ChannelAccessRefused:
            # AMQP cannot look up a binding. The user who may configure is trusted to have made it.
            self._channel = None

    async def _open(self) -> aiormq.abc.AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._connection.channel()
        return self._channel

    async def close(self) -> None:
        if self._channel is not None and not self._channel.is_closed:
            await self._connection.call(self._channel.close())
