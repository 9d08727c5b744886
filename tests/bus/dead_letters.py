"""Dead-letter queues for tests, filled and read by pika instead of the client under test."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel

from leveret.bus import fanout, topic
from leveret.bus.dead_letters.dead_letter import QUORUM_COUNTS
from leveret.bus.topology import Layout


class Found(NamedTuple):
    """A message as another client sees it."""

    body: bytes
    properties: pika.BasicProperties

    @property
    def headers(self) -> dict[str, Any]:
        """The headers without those that quorum queues add to each delivery."""
        headers = dict(self.properties.headers or {})
        for name in QUORUM_COUNTS:
            headers.pop(name, None)
        return headers


class Stage:
    """The queues of one service, declared at a broker."""

    def __init__(self, url: str, layout: Layout) -> None:
        self.url = url
        self.layout = layout
        with self.channel() as channel:
            for exchange in layout.consuming.exchanges:
                channel.exchange_declare(exchange.name, str(exchange.type), durable=True)
            for queue in layout.consuming.queues:
                channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
            for binding in layout.consuming.bindings:
                channel.queue_bind(binding.queue, binding.exchange, binding.routing_key)

    @contextlib.contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """A channel with confirms."""
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        with contextlib.closing(connection):
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel

    def fill(self, count: int, **changed: Any) -> None:
        """Put dead letters into the dead-letter queue, as a bus does."""
        with self.channel() as channel:
            for number in range(1, count + 1):
                channel.basic_publish(
                    self.layout.dead_letters.exchange,
                    self.layout.dead_letters.routing_key,
                    b'{"order": {"id": %d}}' % number,
                    self._properties(number, changed),
                )

    def _properties(self, number: int, changed: dict[str, Any]) -> pika.BasicProperties:
        headers = {
            "tenant": f"t{number % 2}",
            "x-original-queue": self.layout.queue,
            "x-final-status-code": 500 + number % 3,
            "x-final-error": f"error {number}",
            "x-final-retry-count": 10,
            "x-death": [
                {
                    "count": 10,
                    "reason": "rejected",
                    "queue": self.layout.queue,
                    "exchange": self.layout.exchange,
                    "routing-keys": [""],
                }
            ],
            **changed,
        }
        known = {name: value for name, value in headers.items() if value is not None}
        return pika.BasicProperties(
            message_id=f"m{number}", delivery_mode=2, content_type="application/json", headers=known
        )

    def take(self, queue: str) -> list[Found]:
        """Take all messages of a queue."""
        found: list[Found] = []
        with self.channel() as channel:
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return found
                found.append(Found(body, properties))

    def dead(self) -> list[str]:
        """Take all messages of the dead-letter queue and return their ids."""
        return [found.properties.message_id for found in self.take(self.layout.dlq)]

    def back(self) -> list[str]:
        """Take all messages of the service's queue and return their ids."""
        return [found.properties.message_id for found in self.take(self.layout.queue)]

    def names(self) -> list[str]:
        """The command-line options that name the queue."""
        option = "--service" if self.layout.exchange.endswith(".main-exchange") else "--queue"
        return [option, self.layout.service, "--amqp-url", self.url]


def stage(url: str, kind: str) -> Stage:
    """Queues of a new service."""
    name = f"dlq-{uuid.uuid4().hex[:8]}"
    return Stage(url, fanout.layout(name) if kind == "fanout" else topic.layout(name))
