"""The token of a client, and another one when it ends.

A token is given as text, which stays as it is, or as a function that is asked for one: before the
first call, and again after a 401, once for each call. However many calls are refused at the same
time, one asks and all go on with what it was given. A function that fails is a call that failed
(`NotAuthenticatedError`, without a status): the next call asks again.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from leveret.jobs.client.address import Address
from leveret.jobs.client.errors import NotAuthenticatedError
from leveret.jobs.client.http1 import Requests

TokenSource = Callable[[], str]
AsyncTokenSource = Callable[[], str | Awaitable[str]]


class Tokens:
    """Requests with the token of now, for threads."""

    def __init__(self, address: Address, source: TokenSource | None) -> None:
        self._address = address
        self._source = source
        self._requests = address.requests if source is None else None
        self._lock = threading.Lock()

    def current(self) -> Requests:
        return self._requests or self.renewed(None)

    def can_renew(self) -> bool:
        return self._source is not None

    def renewed(self, refused: Requests | None) -> Requests:
        """Requests with another token than those that were refused."""
        with self._lock:
            if self._requests is refused or self._requests is None:
                self._requests = self._asked()
            return self._requests

    def _asked(self) -> Requests:
        assert self._source is not None
        try:
            return self._address.requests.with_token(self._source())
        except Exception as fault:
            raise _without(fault) from fault


class AsyncTokens:
    """The same for one event loop. The function may block: it is called in a thread."""

    def __init__(self, address: Address, source: AsyncTokenSource | None) -> None:
        self._address = address
        self._source = source
        self._requests = address.requests if source is None else None
        self._lock = asyncio.Lock()

    async def current(self) -> Requests:
        return self._requests or await self.renewed(None)

    def can_renew(self) -> bool:
        return self._source is not None

    async def renewed(self, refused: Requests | None) -> Requests:
        """Requests with another token than those that were refused."""
        async with self._lock:
            if self._requests is refused or self._requests is None:
                self._requests = await self._asked()
            return self._requests

    async def _asked(self) -> Requests:
        assert self._source is not None
        try:
            found = await asyncio.to_thread(self._source)
            token = found if isinstance(found, str) else await found
            return self._address.requests.with_token(token)
        except Exception as fault:
            raise _without(fault) from fault


def _without(fault: Exception) -> NotAuthenticatedError:
    return NotAuthenticatedError(f"no token can be had: {str(fault) or type(fault).__name__}")
