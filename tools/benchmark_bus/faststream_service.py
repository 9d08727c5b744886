"""The service, on FastStream."""

import logging
import time
import uuid
from typing import Any

from faststream import AckPolicy
from faststream.rabbit import Channel, RabbitBroker, RabbitExchange, RabbitMessage, RabbitQueue
from faststream.rabbit.schemas import ExchangeType

from tools.benchmark_bus.event import OrderPlaced, Work

RETRIES_MAX = 10
RETRY_DELAY_MS = 5000
log = logging.getLogger(__name__)


class FastStreamService:
    """Publishes orders and handles them."""

    def __init__(self, url: str, name: str, concurrency: int, work: Work | None) -> None:
        prefix = name.partition("-")[0]
        self._broker = RabbitBroker(url, logger=None, graceful_timeout=30)
        self._main = RabbitExchange(
            f"{prefix}.main-exchange", type=ExchangeType.FANOUT, durable=True
        )
        self._retry = RabbitExchange(
            f"{prefix}.retry-exchange.{name}", type=ExchangeType.DIRECT, durable=True
        )
        rejected: Any = {
            "x-dead-letter-exchange": self._retry.name,
            "x-dead-letter-routing-key": "retry",
        }
        self._queue = RabbitQueue(f"{prefix}.queue.{name}", durable=True, arguments=rejected)
        waiting: Any = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self._queue.name,
            "x-message-ttl": RETRY_DELAY_MS,
        }
        self._waiting = RabbitQueue(f"{prefix}.retry-queue.{name}", durable=True, arguments=waiting)
        self._dlq = RabbitQueue(f"{prefix}.dlq.{name}", durable=True)
        self._work = work
        if work is not None:
            self._broker.subscriber(
                self._queue,
                self._main,
                ack_policy=AckPolicy.MANUAL,
                channel=Channel(prefetch_count=concurrency),
            )(self._handle)

    async def start(self) -> None:
        await self._broker.connect()
        await self._broker.declare_exchange(self._main)
        if self._work is not None:
            retry = await self._broker.declare_exchange(self._retry)
            waiting = await self._broker.declare_queue(self._waiting)
            await waiting.bind(retry, "retry")
            await self._broker.declare_queue(self._dlq)
        await self._broker.start()

    async def _handle(self, event: OrderPlaced, message: RabbitMessage) -> None:
        assert self._work is not None
        if message.raw_message.type != OrderPlaced.__name__:
            await message.ack()
            return
        try:
            await self._work(event)
        except Exception as fault:
            log.exception("message %s failed", message.message_id)
            retries = _retries(message, self._queue.name)
            if retries < RETRIES_MAX:
                await message.reject()
                return
            await self._bury(message, retries, fault)
        await message.ack()

    async def _bury(self, message: RabbitMessage, retries: int, fault: Exception) -> None:
        headers: dict[str, Any] = {
            **message.headers,
            "x-original-queue": self._queue.name,
            "x-final-retry-count": retries,
            "x-final-error": f"{type(fault).__name__}: {fault}",
        }
        await self._broker.publish(
            message.body,
            queue=self._dlq.name,
            headers=headers,
            content_type=message.content_type,
            persist=True,
            message_id=message.message_id,
            message_type=message.raw_message.type,
        )

    async def publish(self, event: OrderPlaced) -> None:
        await self._broker.publish(
            event,
            exchange=self._main,
            mandatory=False,
            persist=True,
            message_id=uuid.uuid4().hex,
            message_type=OrderPlaced.__name__,
            timestamp=time.time(),  # noqa: TID251 as users write it
            timeout=30,
        )

    async def stop(self) -> None:
        await self._broker.stop()


def _retries(message: RabbitMessage, queue: str) -> int:
    deaths: Any = message.headers.get("x-death", [])
    return sum(
        int(death["count"])
        for death in deaths
        if death["queue"] == queue and death["reason"] == "rejected"
    )
