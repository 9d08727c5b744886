"""What the broker delivered: a `Delivery` for handlers, and what settling and copying it needs."""

from dataclasses import dataclass
from datetime import datetime

import aiormq.abc
from aiormq import spec

from leveret.bus import headers as names
from leveret.bus.delivery import Delivery


@dataclass
class Received:
    """A delivery, its tag, and its headers as they came."""

    delivery: Delivery
    tag: int
    headers: names.Headers
    properties: spec.Basic.Properties
    is_settled: bool = False  # a tag may be settled once


def received(message: aiormq.abc.DeliveredMessage, queue: str) -> Received:
    """The delivery of a message from this queue."""
    properties = message.header.properties
    headers: names.Headers = dict(properties.headers or {})
    count = names.retry_count(headers, queue)
    delivery = Delivery(
        queue=queue,
        body=message.body,
        message_id=properties.message_id or "",
        type=properties.message_type or "",
        routing_key=message.routing_key or "",
        exchange=message.exchange or "",
        content_type=properties.content_type or "",
        correlation_id=properties.correlation_id or "",
        headers={**headers, names.RETRY_COUNT: count},
        retry_count=count,
        timestamp_s=_seconds(properties.timestamp),
        is_redelivered=bool(message.redelivered),
    )
    assert message.delivery_tag is not None
    return Received(delivery, message.delivery_tag, headers, properties)


def _seconds(timestamp: datetime | None) -> int | None:
    return None if timestamp is None else int(timestamp.timestamp())
