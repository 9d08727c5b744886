"""A slow line is not a silent broker: large messages pass, however long they take."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import pytest

from leveret.bus import Bus, QueueType, topic
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Seen, pytestmark_bus

pytestmark = pytestmark_bus

BYTES_PER_S: Final = 500_000
CHUNK_BYTES: Final = 8_192
# Three times as long as the bus waits for an answer.
LARGE_BYTES: Final = 1_500_000
SETTINGS: Final = replace(FAST, answer_timeout_s=1.0, heartbeat_s=20)
WAIT_S: Final = 60.0


@dataclass
class Large:
    """A large event."""

    text: str


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK_BYTES):
            target.write(data)
            await target.drain()
            await asyncio.sleep(len(data) / BYTES_PER_S)
    target.close()


@asynccontextmanager
async def slow_line(port: int) -> AsyncIterator[str]:
    """Yield the address of a slow line to a broker, with small buffers in the kernel."""

    async def connect(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        broker, asked = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK_BYTES)
        await asyncio.gather(_carry(client, asked), _carry(broker, answers))

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK_BYTES)
    listener.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(connect, sock=listener, limit=CHUNK_BYTES)
    try:
        yield f"amqp://guest:guest@127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.close()


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_large_message_passes(node: Node, prefix: str, is_sent: bool) -> None:
    layout = topic.layout(f"{prefix}.events", queue_type=QueueType.CLASSIC)
    async with slow_line(node.port) as slow_url:
        url, other_url = (node.url, slow_url) if is_sent else (slow_url, node.url)
        bus = Bus(url, layout, settings=SETTINGS)
        seen: Seen[int] = Seen()

        @bus.on(Large)
        async def note(event: Large) -> None:
            await seen.add(len(event.text))

        async with bus, Bus(other_url, layout, settings=SETTINGS) as other:
            await other.publish(Large("x" * LARGE_BYTES), timeout_s=WAIT_S)
            assert await seen.wait(1, WAIT_S) == [LARGE_BYTES]
