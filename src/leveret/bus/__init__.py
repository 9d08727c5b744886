"""The event bus: a typed client library for Leveret and RabbitMQ, with two topologies built in.

    from dataclasses import dataclass
    from leveret.bus import Bus, Delivery, fanout

    @dataclass
    class OrderPlaced:
        order_id: int

    bus = Bus("amqp://guest:guest@localhost/", fanout.layout("shop-billing"))

    @bus.on(OrderPlaced)
    async def bill(event: OrderPlaced, delivery: Delivery) -> None: ...

    async with bus:                      # declare, consume, and recover from any loss
        await bus.publish(OrderPlaced(1))    # returns when the broker has it on disk

`fanout` and `topic` are the topologies. `SyncBus` is for programs without an event loop, and
`testing.FakeBus` for tests. Install it by `pip install leveret-bus`, or `"leveret[bus]"`.
"""

try:
    import aio_pika  # noqa: F401
except ModuleNotFoundError as fault:
    text = 'the event bus needs aio-pika: pip install leveret-bus, or "leveret[bus]"'
    raise ModuleNotFoundError(text, name="aio_pika") from fault

from leveret.bus import fanout, topic
from leveret.bus.bus import Bus
from leveret.bus.delivery import Delivery
from leveret.bus.dispatch import Middleware, Next
from leveret.bus.errors import (
    AlreadyHandledError,
    BusError,
    DecodeError,
    EncodeError,
    HandlerTimeoutError,
    LoginRefusedError,
    NackedError,
    NotConnectedError,
    PermanentError,
    PublishBlockedError,
    PublishClosedError,
    PublishError,
    PublishRefusedError,
    PublishTimeoutError,
    TooLargeError,
    TopologyMismatchError,
    UnroutableError,
)
from leveret.bus.handler_result import DeliveryOutcome, HandlerResult, HandlerReturn
from leveret.bus.health import Health
from leveret.bus.idempotency import ClaimState, IdempotencyStore, MemoryStore, SqliteStore
from leveret.bus.outbox import Outbox, OutboxMessage, PostgresOutbox, SqliteOutbox
from leveret.bus.outgoing_message import PublishOptions
from leveret.bus.retry_policy import RetryPolicy
from leveret.bus.settings import BusSettings
from leveret.bus.shared_stores import PostgresStore, RedisStore
from leveret.bus.sync import SyncBus
from leveret.bus.topology import Layout, QueueType, Topology

__all__ = [
    "Bus",
    "BusSettings",
    "ClaimState",
    "DeliveryOutcome",
    "Delivery",
    "HandlerResult",
    "Health",
    "Layout",
    "QueueType",
    "IdempotencyStore",
    "MemoryStore",
    "Middleware",
    "Next",
    "Outbox",
    "OutboxMessage",
    "PostgresOutbox",
    "PostgresStore",
    "PublishOptions",
    "RedisStore",
    "HandlerReturn",
    "RetryPolicy",
    "SqliteOutbox",
    "SqliteStore",
    "SyncBus",
    "Topology",
    "fanout",
    "topic",
    # Errors
    "AlreadyHandledError",
    "BusError",
    "NackedError",
    "NotConnectedError",
    "DecodeError",
    "EncodeError",
    "HandlerTimeoutError",
    "LoginRefusedError",
    "PermanentError",
    "PublishBlockedError",
    "PublishClosedError",
    "PublishRefusedError",
    "PublishError",
    "PublishTimeoutError",
    "TooLargeError",
    "TopologyMismatchError",
    "UnroutableError",
]
