"""The service, on plain aio-pika."""

import asyncio
import contextlib
import json
import logging
import time
import uuid
from dataclasses import asdict
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustChannel

from tools.benchmark_bus.event import OrderPlaced, Work

RETRIES_MAX = 10
RETRY_DELAY_MS = 5000
log = logging.getLogger(__name__)


class AioPikaService:
    """Publishes orders and handles them."""

    def __init__(self, url: str, name: str, concurrency: int, work: Work | None) -> None:
        self._url = url
        self._name = name
        self._prefix = name.partition("-")[0]
        self._concurrency = concurrency
        self._work = work
        self._running: set[asyncio.Task[None]] = set()
        self._tag = ""

    async def start(self) -> None:
        self._connection = await aio_pika.connect_robust(self._url)
        self._publishing = await self._channel()
        self._exchange = await self._publishing.declare_exchange(
            f"{self._prefix}.main-exchange", aio_pika.ExchangeType.FANOUT, durable=True
        )
        if self._work is not None:
            await self._consume()

    async def _channel(self) -> AbstractRobustChannel:
        channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        assert isinstance(channel, AbstractRobustChannel)
        return channel

    async def _consume(self) -> None:
        channel = await self._channel()
        await channel.set_qos(prefetch_count=self._concurrency)
        retry = await channel.declare_exchange(
            f"{self._prefix}.retry-exchange.{self._name}",
            aio_pika.ExchangeType.DIRECT,
            durable=True,
        )
        queue = await channel.declare_queue(
            f"{self._prefix}.queue.{self._name}",
            durable=True,
            arguments={
                "x-dead-letter-exchange": retry.name,
                "x-dead-letter-routing-key": "retry",
            },
        )
        waiting = await channel.declare_queue(
            f"{self._prefix}.retry-queue.{self._name}",
            durable=True,
            arguments={
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": queue.name,
                "x-message-ttl": RETRY_DELAY_MS,
            },
        )
        self._dlq = await channel.declare_queue(f"{self._prefix}.dlq.{self._name}", durable=True)
        await queue.bind(self._exchange.name)
        await waiting.bind(retry, "retry")
        self._queue = queue
        self._tag = await queue.consume(self._on_message)

    async def _on_message(self, message: AbstractIncomingMessage) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._handle(message)
        finally:
            self._running.discard(task)

    async def _handle(self, message: AbstractIncomingMessage) -> None:
        assert self._work is not None
        if message.type != OrderPlaced.__name__:
            await message.ack()
            return
        try:
            await self._work(OrderPlaced(**json.loads(message.body)))
        except Exception as fault:
            log.exception("message %s failed", message.message_id)
            retries = _retries(message, self._queue.name)
            if retries < RETRIES_MAX:
                await message.reject(requeue=False)
                return
            await self._bury(message, retries, fault)
        await message.ack()

    async def _bury(self, message: AbstractIncomingMessage, retries: int, fault: Exception) -> None:
        headers: dict[str, Any] = {
            **message.headers,
            "x-original-queue": self._queue.name,
            "x-final-retry-count": retries,
            "x-final-error": f"{type(fault).__name__}: {fault}",
        }
        copy = aio_pika.Message(
            message.body,
            headers=headers,
            content_type=message.content_type,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=message.message_id,
            type=message.type,
        )
        await self._publishing.default_exchange.publish(copy, self._dlq.name)

    async def publish(self, event: OrderPlaced) -> None:
        message = aio_pika.Message(
            json.dumps(asdict(event)).encode(),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=uuid.uuid4().hex,
            type=OrderPlaced.__name__,
            timestamp=time.time(),  # noqa: TID251 as users write it
        )
        await self._exchange.publish(message, "", mandatory=False, timeout=30)

    async def stop(self) -> None:
        if self._tag:
            await self._queue.cancel(self._tag)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.gather(*self._running)
        await self._connection.close()


def _retries(message: AbstractIncomingMessage, queue: str) -> int:
    deaths: Any = message.headers.get("x-death", [])
    return sum(
        int(death["count"])
        for death in deaths
        if death["queue"] == queue and death["reason"] == "rejected"
    )
