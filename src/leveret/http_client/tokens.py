"""Bearer tokens of a client, and their renewal.

A token is a text, which never changes, or a function that returns one. The function is called
before the first call, and again after the server has refused the token (401), once for each call.
When several calls are refused at the same time, one of them calls the function and all use its
result.
A function that fails makes its call fail (`NotAuthenticatedError`, with status 0); the next call
calls it again.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from leveret.http_client.errors import NotAuthenticatedError
from leveret.http_client.requests import RequestEncoder

TokenSource = Callable[[], str]
AsyncTokenSource = Callable[[], str | Awaitable[str]]


class TokenRenewal:
    """The request encoder with the current token, for threads."""

    def __init__(self, encoder: RequestEncoder, source: TokenSource | None) -> None:
        self._first = encoder
        self._source = source
        self._encoder = encoder if source is None else None
        self._lock = threading.Lock()

    def current(self) -> RequestEncoder:
        return self._encoder or self.renew(None)

    def can_renew(self) -> bool:
        return self._source is not None

    def renew(self, refused: RequestEncoder | None) -> RequestEncoder:
        """Return an encoder with another token than the refused one."""
        with self._lock:
            if self._encoder is refused or self._encoder is None:
                self._encoder = self._ask_source()
            return self._encoder

    def _ask_source(self) -> RequestEncoder:
        assert self._source is not None
        try:
            return self._first.with_token(self._source())
        except Exception as fault:
            raise _token_error(fault) from fault


class AsyncTokenRenewal:
    """The request encoder with the current token, for one event loop.

    The function may block: it is called in a thread.
    """

    def __init__(self, encoder: RequestEncoder, source: AsyncTokenSource | None) -> None:
        self._first = encoder
        self._source = source
        self._encoder = encoder if source is None else None
        self._lock = asyncio.Lock()

    @property
    def known(self) -> RequestEncoder | None:
        """The current encoder; None if `renew` must make the first one."""
        return self._encoder

    def can_renew(self) -> bool:
        return self._source is not None

    async def renew(self, refused: RequestEncoder | None) -> RequestEncoder:
        """Return an encoder with another token than the refused one."""
        async with self._lock:
            if self._encoder is refused or self._encoder is None:
                self._encoder = await self._ask_source()
            return self._encoder

    async def _ask_source(self) -> RequestEncoder:
        assert self._source is not None
        try:
            found = await asyncio.to_thread(self._source)
            token = found if isinstance(found, str) else await found
            return self._first.with_token(token)
        except Exception as fault:
            raise _token_error(fault) from fault


def _token_error(fault: Exception) -> NotAuthenticatedError:
    reason = str(fault) or type(fault).__name__
    return NotAuthenticatedError(f"no token could be obtained: {reason}")
