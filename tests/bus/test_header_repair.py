"""Messages that the client library cannot decode are handled like any other."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from random import Random
from typing import Any

import aiormq
import pytest
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from leveret.bus import Bus, Delivery, QueueType, topic
from leveret.bus.connections.header_repair import TIME_MAX, repair_content_header
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Placed, Seen, pytestmark_bus, take

pytestmark = pytestmark_bus

MICROSECONDS = 1_700_000_000_000_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATIN = "Größe".encode("latin-1")


def time_of(value: int) -> bytes:
    return struct.pack(">Q", value)


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def table(inner: bytes) -> bytes:
    return struct.pack(">I", len(inner)) + inner


INNER = short(LATIN) + b"t\x01" + short(b"at") + b"T" + time_of(2**64 - 1)
HEADERS = table(
    short(b"at")
    + b"T"
    + time_of(MICROSECONDS)
    + short(b"list")
    + b"A"
    + table(b"T" + time_of(MICROSECONDS) + b"F" + table(INNER) + b"V")
    + short(b"count")
    + b"I\x00\x00\x00\x07"
)


class Raw(Basic.Properties):
    """Properties as another program may write them."""

    def encode_property(self, name: str, value: Any) -> bytes:
        if name == "timestamp":
            return time_of(MICROSECONDS)
        if name == "app_id":
            return short(LATIN)
        if name == "headers":
            return HEADERS
        return bytes(super().encode_property(name, value))


def raw_properties(**more: Any) -> Raw:
    return Raw(timestamp=NOW, app_id="x", headers={"x": 1}, **more)


def decoded(payload: bytes) -> Basic.Properties:
    header = ContentHeader()
    header.unmarshal(payload)
    return header.properties


def test_undecodable_header_is_repaired() -> None:
    payload = ContentHeader(body_size=3, properties=raw_properties(message_id="m")).marshal()
    with pytest.raises(ValueError, match="out of range"):
        decoded(payload)
    found = decoded(repair_content_header(payload))
    assert (found.timestamp, found.app_id, found.message_id) == (None, "Größe", "m")
    assert found.headers == {
        "at": MICROSECONDS,
        "list": [MICROSECONDS, {"Größe": True, "at": -1}, None],
        "count": 7,
    }


def test_decodable_header_stays_byte_for_byte() -> None:
    headers: dict[str, Any] = {
        "ä": "ü", "n": -5, "big": 2**40, "half": 0.5, "on": True, "no": None,
        "at": datetime.fromtimestamp(TIME_MAX / 1000 - 1, UTC), "raw": bytearray(b"\xff"),
        "deaths": [{"queue": "q", "count": 3, "keys": ["a"]}], "empty": {},
    }  # fmt: skip
    whole = Basic.Properties("t", "e", headers, 2, 5, "c", "r", "9", "m", NOW, "ty", "u", "a")
    for properties in (whole, Basic.Properties(), Basic.Properties(priority=3)):
        payload = ContentHeader(body_size=1, properties=properties).marshal()
        assert repair_content_header(payload) == payload


def test_malformed_header_is_returned_unchanged(seed: int) -> None:
    rng = Random(seed)
    whole = ContentHeader(body_size=3, properties=raw_properties()).marshal()
    for _ in range(2_000):
        broken = bytearray(whole[: rng.randint(0, len(whole))])
        for _ in range(rng.randint(0, 3)):
            if broken:
                broken[rng.randrange(len(broken))] = rng.randrange(256)
        repair_content_header(bytes(broken))
    assert repair_content_header(b"") == b""
    assert repair_content_header(whole[:-3]) == whole[:-3]


async def test_undecodable_message_is_handled_and_does_not_stop_later_ones(
    node: Node, prefix: str
) -> None:
    """The message becomes a dead letter, which can be read."""
    queue = f"{prefix}.events"
    layout = topic.layout(queue, queue_type=QueueType.CLASSIC, retries_max=1, retry_delay_s=0.03)
    bus = Bus(node.url, layout, settings=FAST)
    seen: Seen[tuple[int, object]] = Seen()

    @bus.on(Placed)
    async def fail_first(event: Placed, delivery: Delivery) -> int:
        await seen.add((event.number, delivery.headers.get("at")))
        return 500 if event.number == 1 else 200

    async with bus:
        connection = await aiormq.connect(node.url)
        other = await connection.channel()
        properties = raw_properties(message_type="Placed", delivery_mode=2)
        await other.basic_publish(b'{"number":1}', routing_key=queue, properties=properties)
        await connection.close()
        await bus.publish(Placed(2))
        await seen.wait_for({(1, MICROSECONDS), (2, None)})
        dead = await take(node.url, f"{queue}.dlq")
        assert dead.headers["x-final-retry-count"] == 1
        assert dead.headers["at"] == MICROSECONDS
        assert (await bus.health()).is_consuming
