"""A session of a consumer: its channel, the handler slots it waits for, and the probe."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiormq.abc

from leveret.bus.connections.connection import BrokerConnection
from leveret.bus.connections.recovering_connection import BrokerSession
from leveret.bus.topology import DEFAULT_EXCHANGE, Layout


class ConsumingSession(BrokerSession):
    """A channel with one consumer."""

    def __init__(
        self,
        connection: BrokerConnection,
        channel: aiormq.abc.AbstractChannel,
        since_ms: int,
        layout: Layout,
        consumer_tag: str,
    ) -> None:
        super().__init__(connection, channel, since_ms)
        self.queue = layout.queue
        self.consumer_tag = consumer_tag
        self.returned_tag = f"{consumer_tag}-returned"
        # The channel of the queue of returned messages; None if this user may not declare it.
        self.returned_channel: aiormq.abc.AbstractChannel | None = None
        self._retry_queue = layout.retry_queue
        self._retry_exchange = layout.retry_exchange
        self._waiting: set[asyncio.Task[Any]] = set()  # deliveries without a handler slot yet
        self._lost.add_done_callback(self._on_lost)

    def add_returned(self, channel: aiormq.abc.AbstractChannel) -> None:
        """Use a second channel, for the queue of returned messages."""
        self.returned_channel = channel
        channel.closing.add_done_callback(self._on_closed("the second channel was closed"))
        channel.on_consumer_cancel_callbacks.add(
            lambda frame: self.mark_lost("the broker cancelled the consumer of returned messages")
        )

    @asynccontextmanager
    async def slot(self, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        """Hold one of the handler slots. A lost session cancels the tasks that wait for one."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            await slots.acquire()
        finally:
            self._waiting.discard(task)
        try:
            yield
        finally:
            slots.release()

    def _on_lost(self, lost: "asyncio.Future[str]") -> None:
        for task in self._waiting:
            task.cancel()

    async def probe(self) -> str:
        """Ask the broker for the retry path and for our consumer.

        The question goes over the consumer's own channel, where a cancel would arrive before the
        answer.
        """
        await self.require_retry_path()
        declared = await self.connection.call(self.channel.queue_declare(self.queue, passive=True))
        consumers: dict[str, Any] = getattr(self.channel, "consumers", {})
        if self.consumer_tag not in consumers:
            return "the broker cancelled the consumer"
        return "" if declared.consumer_count else "the broker lists no consumer"

    async def require_retry_path(self) -> None:
        """Raise if the exchange or queue for retries is missing.

        Without them a broker drops a rejected message silently.
        """
        call, channel = self.connection.call, self.channel
        if self._retry_exchange != DEFAULT_EXCHANGE:
            await call(channel.exchange_declare(self._retry_exchange, passive=True))
        await call(channel.queue_declare(self._retry_queue, passive=True))
