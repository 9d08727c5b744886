"""Posts bodies to one HTTP address on kept connections, with a deadline for each whole request.

Redirects are not followed: their status is the answer.

Invariant: a request either gives the status of a complete answer or raises `PostError`, within the
deadline, whatever the server does.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from leveret.errors import ConfigError, LeveretError
from leveret.http_client.address import parse_address
from leveret.http_client.async_connections import AsyncConnectionPool
from leveret.http_client.errors import CallError, UnreachableError
from leveret.http_client.requests import RequestEncoder

ANSWER_BYTES_MAX: Final = 65536  # read of an answer; the connection of a longer one is closed
_SCHEMES: Final = ("http://", "https://")


class PostError(LeveretError):
    """There was no answer: no connection, no time left, or no HTTP."""


class Poster:
    """Posts to one address, at most `concurrency` requests at once. Belongs to one event loop."""

    def __init__(self, url: str, *, concurrency: int, timeout_s: float) -> None:
        try:
            if not url.lower().startswith(_SCHEMES):
                raise ValueError("no scheme")
            address = parse_address(url)
        except ValueError as fault:
            raise ConfigError(f"{url!r} is not an http:// or https:// address") from fault
        self.url = url
        self._timeout_s = timeout_s  # of a whole request
        self._encoder = RequestEncoder(address, accept="*/*")
        self._connections = AsyncConnectionPool(
            address, concurrency, body_bytes_max=ANSWER_BYTES_MAX, cuts_bodies=True
        )

    async def post(self, headers: Mapping[str, str], body: bytes) -> int:
        """Return the status of the answer; PostError where there is none within the deadline."""
        request = self._encoder.encode_to_target("POST", body, headers)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post(request)
        except TimeoutError:
            raise PostError(f"no answer within {self._timeout_s:g} s") from None
        except CallError as fault:
            raise PostError(str(fault)) from fault

    async def _post(self, request: bytes) -> int:
        """Post, and once more where the server had closed the kept connection meanwhile."""
        try:
            return (await self._connections.ask(request)).status
        except UnreachableError as fault:
            if not fault.was_idle:
                raise
        return (await self._connections.ask(request, on_new_connection=True)).status

    def close(self) -> None:
        """Close every connection; requests that are under way fail."""
        self._connections.abort()
