"""A port that answers whether a service consumes: for probes of whatever keeps the service alive.

Any GET gives 200 and a JSON document while the broker lists the consumer, 503 and the same document
when not. It is no web server: one request for each connection, read up to its limit and deadline.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

REQUEST_BYTES_MAX: Final = 8192
REQUEST_S: Final = 5.0

log = logging.getLogger(__name__)

Ask = Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]  # is it well, and what to tell


class HealthPort:
    """Listens on a port and asks somebody else."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; the port, which is a free one where 0 was asked for."""
        self._server = await asyncio.start_server(
            self._on_connection, host, port, limit=REQUEST_BYTES_MAX
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listens no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                await reader.readuntil(b"\r\n\r\n")
                is_well, document = await self._ask()
                writer.write(_answer(is_well, document))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a health request broke off", exc_info=True)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _answer(is_well: bool, document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode() + b"\n"
    status = "200 OK" if is_well else "503 Service Unavailable"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
