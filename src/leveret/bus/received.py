"""A delivery of the broker, converted for handlers."""

from dataclasses import dataclass

import aiormq.abc
from aiormq import spec

from leveret.bus import headers as bus_headers
from leveret.bus.delivery import Delivery


@dataclass
class ReceivedMessage:
    """A delivery with everything that settling and copying it needs."""

    delivery: Delivery
    tag: int
    headers: bus_headers.Headers  # as received, without the count that `delivery` has
    properties: spec.Basic.Properties
    is_settled: bool = False  # a tag may be settled once


def receive(message: aiormq.abc.DeliveredMessage, queue: str) -> ReceivedMessage:
    """Convert a message of aiormq, received from this queue."""
    properties = message.header.properties
    headers: bus_headers.Headers = dict(properties.headers or {})
    count = bus_headers.retry_count(headers, queue)
    timestamp = properties.timestamp
    delivery = Delivery(
        queue=queue,
        body=message.body,
        message_id=properties.message_id or "",
        type=properties.message_type or "",
        routing_key=message.routing_key or "",
        exchange=message.exchange or "",
        content_type=properties.content_type or "",
        correlation_id=properties.correlation_id or "",
        headers={**headers, bus_headers.RETRY_COUNT: count},
        retry_count=count,
        timestamp_s=None if timestamp is None else int(timestamp.timestamp()),
        is_redelivered=bool(message.redelivered),
    )
    assert message.delivery_tag is not None
    return ReceivedMessage(delivery, message.delivery_tag, headers, properties)
