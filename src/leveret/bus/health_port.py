"""A TCP port that tells whether a bus is healthy, for probes of a supervisor, and its metrics.

`GET /metrics` gets the metrics in the format of Prometheus. Any other GET gets a JSON document,
with status 200 while the bus is healthy and 503 otherwise. This is no web server: each connection
serves one request, with a size limit and a deadline.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from leveret.bus.metrics import CONTENT_TYPE

REQUEST_BYTES_MAX: Final = 8192
REQUEST_TIMEOUT_S: Final = 5.0
METRICS_PATH: Final = b"/metrics"

log = logging.getLogger(__name__)

GetHealth = Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]  # is it healthy; the document


class HealthPort:
    """Listens on a port and answers with the results of `get_health` and `get_metrics`."""

    def __init__(self, get_health: GetHealth, get_metrics: Callable[[], str]) -> None:
        self._get_health = get_health
        self._get_metrics = get_metrics
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Port 0 means a free one."""
        self._server = await asyncio.start_server(
            self._on_connection, host, port, limit=REQUEST_BYTES_MAX
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            answer = await self._answer(head)  # each question to the broker has its own deadline
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                writer.write(answer)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a health request was cut off", exc_info=True)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: bytes) -> bytes:
        target = head.split(b" ", 2)[1:2]
        if target and target[0].partition(b"?")[0] == METRICS_PATH:
            return _encode("200 OK", CONTENT_TYPE, self._get_metrics().encode())
        is_healthy, document = await self._get_health()
        status = "200 OK" if is_healthy else "503 Service Unavailable"
        return _encode(status, "application/json", json.dumps(document).encode() + b"\n")


def _encode(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
