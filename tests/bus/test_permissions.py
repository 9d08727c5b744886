"""A user without configure permission uses an existing topology, and is told what is missing."""

from __future__ import annotations

import base64
import json
import urllib.request

import pytest

from leveret.bus import Bus, QueueType, TopologyMismatchError, topic
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Placed, Seen, pytestmark_bus
from tools.ports import HOST

pytestmark = pytestmark_bus


def put(node: Node, path: str, value: dict[str, str]) -> None:
    request = urllib.request.Request(
        f"http://{HOST}:{node.http_port}/api/{path}", json.dumps(value).encode(), method="PUT"
    )
    token = base64.b64encode(b"guest:guest").decode()
    request.add_header("Authorization", f"Basic {token}")
    request.add_header("Content-Type", "application/json")
    urllib.request.build_opener().open(request).close()


def bus_of(url: str, queue: str) -> tuple[Bus, Seen[int]]:
    bus = Bus(url, topic.layout(queue, queue_type=QueueType.CLASSIC), settings=FAST)
    seen: Seen[int] = Seen()

    @bus.on(Placed)
    async def note(event: Placed) -> None:
        await seen.add(event.number)

    return bus, seen


async def test_existing_topology_is_used_without_configure_permission(
    leveret_node: Node, prefix: str
) -> None:
    put(leveret_node, "users/reader", {"password": "secret", "tags": ""})
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    put(leveret_node, "permissions/%2F/reader", rights)
    url = f"amqp://reader:secret@{HOST}:{leveret_node.port}/"
    missing, _ = bus_of(url, f"{prefix}.events")
    with pytest.raises(TopologyMismatchError, match="is missing"):
        await missing.start()
    owner, _ = bus_of(leveret_node.url, f"{prefix}.events")
    async with owner:
        pass
    bus, seen = bus_of(url, f"{prefix}.events")
    async with bus:
        await bus.publish(Placed(1))
        await seen.wait(1)
