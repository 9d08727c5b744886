"""A message as a consumer received it, with everything that settling and copying it needs."""

from dataclasses import dataclass

from aiormq import spec
from aiormq.abc import AbstractChannel

from leveret.bus import headers as bus_headers
from leveret.bus.connections.content_frames import DeliveredContent
from leveret.bus.delivery import Delivery


@dataclass
class ReceivedMessage:
    """A delivery, its tag, and the message as it came."""

    delivery: Delivery
    tag: int
    headers: bus_headers.Headers  # as received, without the count that `delivery` has
    properties: spec.Basic.Properties
    channel: AbstractChannel
    is_alone: bool = False  # it came from the queue of returned messages, one at a time
    is_settled: bool = False  # a tag may be settled once

    @property
    def returns(self) -> int:
        """The number of times that it came back to its queue."""
        return bus_headers.return_count(self.headers, is_redelivered=self.delivery.is_redelivered)

    @property
    def unanswered(self) -> int:
        """The number of deliveries before its last publish that came back without an answer."""
        return bus_headers.count_of(self.headers.get(bus_headers.UNANSWERED_COUNT))


def receive(
    content: DeliveredContent, channel: AbstractChannel, queue: str, *, is_alone: bool = False
) -> ReceivedMessage:
    """Convert a delivery. `queue` is the queue of the service."""
    properties = content.properties
    headers: bus_headers.Headers = dict(properties.headers or {})
    count = bus_headers.retry_count(headers, queue)
    timestamp = properties.timestamp
    exchange, routing_key = content.exchange, content.routing_key
    if headers:
        found = bus_headers.original_address(headers, queue, exchange, routing_key)
        exchange, routing_key = found
    delivery = Delivery(
        queue=queue,
        body=content.body,
        message_id=properties.message_id or "",
        type=properties.message_type or "",
        routing_key=routing_key,
        exchange=exchange,
        content_type=properties.content_type or "",
        correlation_id=properties.correlation_id or "",
        headers={**headers, bus_headers.RETRY_COUNT: count},
        retry_count=count,
        timestamp_s=None if timestamp is None else int(timestamp.timestamp()),
        is_redelivered=content.is_redelivered,
    )
    return ReceivedMessage(delivery, content.tag, headers, properties, channel, is_alone)
