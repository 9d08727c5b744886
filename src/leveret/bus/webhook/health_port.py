"""A TCP port that tells whether a service consumes, for probes of a supervisor.

Any GET gets a JSON document, with status 200 while the broker lists the consumer and 503 otherwise.
This is no web server: each connection serves one request, with a size limit and a deadline.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

REQUEST_BYTES_MAX: Final = 8192
REQUEST_TIMEOUT_S: Final = 5.0

log = logging.getLogger(__name__)

GetHealth = Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]  # is it healthy; the document


class HealthPort:
    """Listens on a port and answers with the result of `get_health`."""

    def __init__(self, get_health: GetHealth) -> None:
        self._get_health = get_health
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
                await reader.readuntil(b"\r\n\r\n")
                is_healthy, document = await self._get_health()
                writer.write(_answer(is_healthy, document))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a health request was cut off", exc_info=True)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _answer(is_healthy: bool, document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode() + b"\n"
    status = "200 OK" if is_healthy else "503 Service Unavailable"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
