"""Valid conversations that together contain every method a client may send.

Each conversation lists the frames of a client on an open connection, and works with any answers of
the broker. Delivery tags assume that nobody else uses the queues. Queues are exclusive if their
type allows it, so that nothing is left when the connection ends.

`GREETING` opens a connection; `STRANGERS` are the methods that only a server sends.
"""

from __future__ import annotations

from typing import Final

from tests.compat import wire
from tests.protocol.outcomes import METHODS
from tests.protocol.stage import method, opening, start_ok, tune_ok

Frames = list[bytes]


def frames_of(data: bytes) -> Frames:
    """Split bytes into frames."""
    frames: Frames = []
    at = 0
    while at < len(data):
        stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        frames.append(data[at:stop])
        at = stop
    return frames


def _published(
    exchange: str,
    key: str,
    body: bytes,
    properties: dict[str, object] | None = None,
    *,
    mandatory: bool = False,
    parts: int = 1,
) -> Frames:
    head = {"exchange": exchange, "routing_key": key, "mandatory": mandatory}
    frames = [
        method(1, "basic.publish", **head),
        wire.frame(wire.HEADER, 1, wire.header(len(body), properties or {})),
    ]
    step = max(1, -(-len(body) // parts))
    places = range(0, len(body), step)
    return [*frames, *(wire.frame(wire.BODY, 1, body[at : at + step]) for at in places)]


EVERY_PROPERTY: Final[dict[str, object]] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {
        "text": "näme",
        "number": 5,
        "big": 2**40,
        "octet": ("B", 200),
        "small": ("s", -3),
        "long": ("l", -(2**60)),
        "yes": True,
        "none": None,
        "float": ("f", 1.5),
        "double": 2.25,
        "decimal": ("D", (2, 314)),
        "time": ("T", 1_700_000_000),
        "bytes": b"\x00\xff",
        "list": [1, "two", [3, {"four": 4}]],
        "table": {"in": {"side": {"deeper": 1}}},
    },
    "delivery_mode": 2,
    "priority": 4,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "greeting",
    "user_id": "guest",
    "app_id": "app",
    "cluster_id": "",
}

DEFINITIONS: Final[Frames] = [
    method(1, "channel.open"),
    method(1, "access.request", realm="/data", active=True, read=True),
    method(1, "exchange.declare", exchange="c.topic", type="topic", auto_delete=True),
    method(
        1,
        "exchange.declare",
        exchange="c.headers",
        type="headers",
        arguments={"alternate-exchange": "c.topic"},
    ),
    method(
        1,
        "exchange.declare",
        exchange="c.hash",
        type="x-consistent-hash",
        arguments={"hash-header": "k"},
    ),
    method(1, "exchange.declare", exchange="c.topic", type="topic", passive=True),
    method(
        1,
        "queue.declare",
        queue="c.plain",
        exclusive=True,
        arguments={
            "x-message-ttl": 60_000,
            "x-expires": 600_000,
            "x-max-length": 100,
            "x-max-length-bytes": 100_000,
            "x-overflow": "drop-head",
            "x-max-priority": 10,
            "x-dead-letter-exchange": "c.topic",
            "x-dead-letter-routing-key": "dead",
            "x-single-active-consumer": True,
            "x-queue-mode": "lazy",
        },
    ),
    method(1, "queue.declare", queue="", exclusive=True, auto_delete=True),
    method(1, "queue.bind", queue="", exchange="c.topic", routing_key="a.*.#"),
    method(
        1,
        "queue.bind",
        queue="c.plain",
        exchange="c.headers",
        arguments={"x-match": "any", "k": 1, "s": "v"},
    ),
    method(1, "queue.bind", queue="c.plain", exchange="c.hash", routing_key="10"),
    method(1, "exchange.bind", destination="c.topic", source="c.headers", routing_key="r"),
    *_published("c.headers", "a.b", b"x", {"headers": {"k": 1}}),
    *_published("c.topic", "a.b.c", b"y"),
    *_published("c.hash", "z", b"z", {"headers": {"k": "z"}}),
    method(1, "exchange.unbind", destination="c.topic", source="c.headers", routing_key="r"),
    method(1, "queue.unbind", queue="c.plain", exchange="c.hash", routing_key="10"),
    method(1, "queue.purge", queue="c.plain"),
    method(1, "queue.delete", queue="c.plain"),
    method(1, "exchange.delete", exchange="c.headers"),
    method(1, "exchange.delete", exchange="c.hash"),
    method(1, "channel.close", reply_code=200, reply_text="done"),
]

GETTING: Final[Frames] = [
    method(1, "channel.open"),
    method(1, "queue.declare", queue="c.get", exclusive=True),
    *_published("", "c.get", b"one", EVERY_PROPERTY),
    *_published("", "c.get", b""),
    *_published(
        "", "c.get", b"three" * 100, {"headers": {"CC": ["c.get"], "BCC": ["c.no"]}}, parts=7
    ),
    *_published("amq.fanout", "nowhere", b"lost", mandatory=True),
    method(1, "basic.get", queue="c.get"),
    method(1, "basic.get", queue="c.get"),
    method(1, "basic.get", queue="c.get"),
    method(1, "basic.get", queue="c.get", no_ack=True),
    method(1, "basic.reject", delivery_tag=1, requeue=True),
    method(1, "basic.nack", delivery_tag=2, multiple=True),
    method(1, "basic.ack", delivery_tag=3),
    method(1, "basic.get", queue="c.get"),
    method(1, "basic.recover", requeue=True),
    method(1, "basic.get", queue="c.get"),
    method(1, "basic.recover-async", requeue=True),
    method(1, "channel.flow", active=True),
    method(0, "connection.update-secret", new_secret="s", reason="r"),
    wire.frame(wire.HEARTBEAT, 0, b""),
    method(0, "connection.close", reply_code=200, reply_text="done"),
]

CONSUMING: Final[Frames] = [
    method(1, "channel.open"),
    method(1, "queue.declare", queue="c.work", exclusive=True, arguments={"x-max-priority": 5}),
    method(1, "basic.qos", prefetch_count=2),
    method(1, "basic.qos", prefetch_count=9, prefetch_size=0, **{"global": True}),
    method(1, "basic.consume", queue="c.work", consumer_tag="t", arguments={"x-priority": 3}),
    *_published("", "c.work", b"a", {"priority": 1}),
    *_published("", "c.work", b"b", {"priority": 9}),
    *_published("", "c.work", b"c", {"priority": 1}),
    *_published("", "c.work", b"d", {"expiration": "0"}),
    method(1, "basic.ack", delivery_tag=1),
    method(1, "basic.nack", delivery_tag=2, requeue=True),
    method(1, "basic.consume", queue="c.work", consumer_tag="u", no_ack=True, nowait=True),
    method(1, "basic.cancel", consumer_tag="u"),
    method(1, "basic.ack", delivery_tag=0, multiple=True),
    method(1, "basic.cancel", consumer_tag="t"),
    method(1, "queue.delete", queue="c.work"),
]

CONFIRMING: Final[Frames] = [
    method(1, "channel.open"),
    method(
        1,
        "queue.declare",
        queue="c.full",
        exclusive=True,
        arguments={"x-max-length": 2, "x-overflow": "reject-publish"},
    ),
    method(1, "confirm.select"),
    *_published("", "c.full", b"1"),
    *_published("", "c.full", b"2"),
    *_published("", "c.full", b"3"),
    *_published("", "c.nowhere", b"4", mandatory=True),
    *_published("", "c.full", b"5"),
    *_published("", "c.nowhere", b"6"),
]

TRANSACTIONS: Final[Frames] = [
    method(1, "channel.open"),
    method(1, "queue.declare", queue="c.tx", exclusive=True),
    method(1, "tx.select"),
    *_published("", "c.tx", b"1"),
    *_published("", "c.tx", b"2"),
    method(1, "tx.commit"),
    method(1, "basic.get", queue="c.tx"),
    method(1, "basic.ack", delivery_tag=1),
    *_published("", "c.tx", b"3"),
    method(1, "tx.rollback"),
    method(1, "basic.reject", delivery_tag=1, requeue=True),
    method(1, "tx.commit"),
]

REPLIES: Final[Frames] = [
    method(1, "channel.open"),
    method(1, "queue.declare", queue="c.rpc", exclusive=True),
    method(1, "basic.consume", queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True),
    *_published("", "c.rpc", b"ask", {"reply_to": "amq.rabbitmq.reply-to"}),
    method(1, "basic.get", queue="c.rpc", no_ack=True),
    method(1, "queue.declare", queue="amq.rabbitmq.reply-to", passive=True),
    method(1, "basic.cancel", consumer_tag="r"),
]

DYING: Final[Frames] = [
    method(1, "channel.open"),
    method(1, "exchange.declare", exchange="c.dead", type="fanout"),
    method(1, "queue.declare", queue="c.grave", exclusive=True),
    method(1, "queue.bind", queue="c.grave", exchange="c.dead"),
    method(
        1,
        "queue.declare",
        queue="c.mortal",
        exclusive=True,
        arguments={"x-dead-letter-exchange": "c.dead", "x-max-length": 1, "x-message-ttl": 5000},
    ),
    *_published("", "c.mortal", b"1", EVERY_PROPERTY),
    *_published("", "c.mortal", b"2", {"headers": {"CC": ["k"], "x-death": [{"count": 1}]}}),
    *_published("", "c.mortal", b"3", {"expiration": "0", "headers": {"a": [1, [2, {"b": 3}]]}}),
    *_published("", "c.mortal", b"4", EVERY_PROPERTY),
    method(1, "basic.get", queue="c.mortal"),
    method(1, "basic.reject", delivery_tag=1),
    method(1, "basic.get", queue="c.grave", no_ack=True),
    method(1, "exchange.delete", exchange="c.dead"),
]

RETRYING: Final[Frames] = [
    method(1, "channel.open"),
    method(
        1,
        "queue.declare",
        queue="c.quorum",
        durable=True,
        arguments={"x-queue-type": "quorum", "x-delivery-limit": 1},
    ),
    method(1, "basic.consume", queue="c.quorum", consumer_tag="t"),
    *_published("", "c.quorum", b"1", EVERY_PROPERTY),
    method(1, "basic.reject", delivery_tag=1, requeue=True),
    method(1, "basic.nack", delivery_tag=2, requeue=True),
    method(1, "basic.reject", delivery_tag=3, requeue=True),
    method(1, "queue.delete", queue="c.quorum"),
]

DELAYING: Final[Frames] = [
    method(1, "channel.open"),
    method(
        1,
        "exchange.declare",
        exchange="c.later",
        type="x-delayed-message",
        arguments={"x-delayed-type": "direct"},
    ),
    method(1, "queue.declare", queue="c.due", exclusive=True, arguments={"x-delayed": True}),
    method(1, "queue.bind", queue="c.due", exchange="c.later", routing_key="k"),
    *_published("c.later", "k", b"1", {"headers": {"x-delay": 1000}}),
    *_published("", "c.due", b"2", {"headers": {"x-delay": 500, "n": {"e": [1]}}}),
    method(1, "exchange.delete", exchange="c.later"),
]

CONVERSATIONS: Final[dict[str, Frames]] = {
    "definitions": DEFINITIONS,
    "getting": GETTING,
    "consuming": CONSUMING,
    "confirming": CONFIRMING,
    "transactions": TRANSACTIONS,
    "replies": REPLIES,
    "dying": DYING,
    "retrying": RETRYING,
    "delaying": DELAYING,
}

GREETING: Final = opening()
GREETING_FRAMES: Final[Frames] = [
    start_ok(),
    tune_ok(),
    method(0, "connection.open", virtual_host="/"),
]

STRANGERS: Final[Frames] = [
    wire.frame(wire.METHOD, 0 if name.startswith("connection") else 1, METHODS[name])
    for name in METHODS
    if name.endswith("-ok")
    or name.split(".")[1] in ("start", "secure", "tune", "blocked", "unblocked")
    or name in ("basic.deliver", "basic.return", "basic.get-empty")
]
