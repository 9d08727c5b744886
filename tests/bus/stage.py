"""Shared by the tests of the bus: an event, a list to wait for, and access to queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from leveret.bus import BusSettings

WAIT_S: Final = 60.0
# Short pauses, and long deadlines: a busy machine must not look like a lost session, which would
# deliver messages again.
FAST: Final = BusSettings(
    publish_timeout_s=WAIT_S,
    early_wait_s=0.03,
    heartbeat_s=60,
    connect_timeout_s=WAIT_S,
    probe_interval_s=0.3,
    answer_timeout_s=WAIT_S,
    stop_deadline_s=WAIT_S,
)
# Notices a silent broker soon. Tests with it must accept that a message is delivered twice.
NOTICING: Final = replace(FAST, heartbeat_s=2, connect_timeout_s=5.0, answer_timeout_s=5.0)
pytestmark_bus = [
    pytest.mark.anyio,
    pytest.mark.compiled_only("the library is the same in both forms"),
]

T = TypeVar("T")


@dataclass
class Placed:
    """An event."""

    number: int


class Seen(Generic[T]):
    """A list of what handlers saw, in order."""

    def __init__(self) -> None:
        self.all: list[T] = []
        self._changed = asyncio.Condition()

    async def add(self, item: T) -> None:
        async with self._changed:
            self.all.append(item)
            self._changed.notify_all()

    async def wait(self, count: int, timeout_s: float = WAIT_S) -> list[T]:
        """Wait for so many items and return all."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: len(self.all) >= count)
        except TimeoutError:
            raise AssertionError(f"{count} were due, seen: {self.all}") from None
        return self.all

    async def wait_for(self, items: set[T], timeout_s: float = WAIT_S) -> None:
        """Wait until all of these were seen."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: items <= set(self.all))
        except TimeoutError:
            missing = items - set(self.all)
            raise AssertionError(f"missing {sorted(map(str, missing))}") from None


@asynccontextmanager
async def channel(url: str) -> AsyncIterator[AbstractChannel]:
    """Open a channel by a client other than the bus."""
    async with (
        await aio_pika.connect(url) as connection,
        connection.channel(on_return_raises=True) as opened,
    ):
        yield opened


async def take(url: str, queue: str, timeout_s: float = WAIT_S) -> AbstractIncomingMessage:
    """Take the next message of a queue."""
    async with channel(url) as opened:
        found = await opened.get_queue(queue, ensure=False)
        arrived: asyncio.Future[AbstractIncomingMessage] = (
            asyncio.get_running_loop().create_future()
        )

        async def on_message(message: AbstractIncomingMessage) -> None:
            if not arrived.done():
                await message.ack()
                arrived.set_result(message)

        await opened.set_qos(1)
        await found.consume(on_message)
        try:
            async with asyncio.timeout(timeout_s):
                return await arrived
        except TimeoutError:
            raise AssertionError(f"nothing came to {queue}") from None


def death_counts(message: AbstractIncomingMessage) -> dict[tuple[object, object], object]:
    """Return how often a message died, by queue and reason."""
    deaths: Any = message.headers["x-death"]
    return {(death["queue"], death["reason"]): death["count"] for death in deaths}


async def depth(url: str, queue: str) -> int:
    """Return the number of ready messages in a queue."""
    async with channel(url) as opened:
        declared = await opened.declare_queue(queue, passive=True)
        return int(declared.declaration_result.message_count or 0)


async def put(url: str, exchange: str, routing_key: str, body: bytes, **properties: Any) -> None:
    """Publish as another program would."""
    async with channel(url) as opened:
        target = await opened.get_exchange(exchange, ensure=False)
        message = aio_pika.Message(body, delivery_mode=2, **properties)
        await target.publish(message, routing_key)
