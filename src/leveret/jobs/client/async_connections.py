"""Connections of the asynchronous client: asyncio protocols, one call at a time on each.

A `AsyncConnections` keeps those that are idle and limits how many there are; a call that finds
none free
waits its turn within its deadline. A connection whose call was given up is closed: its answer could
otherwise be taken for that of the next call.
"""

import asyncio
from collections import deque
from typing import Final

from leveret.jobs.client.address import Address
from leveret.jobs.client.connections import has_news
from leveret.jobs.client.errors import BadAnswerError, UnreachableError
from leveret.jobs.client.http1 import Answer, AnswerReader

LINKS_MAX: Final = 100  # unless a client is told another
_SEND_BYTES_MAX: Final = 64 * 1024 * 1024  # asyncio's own limit would split a large batch


class AsyncConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._transport: asyncio.Transport | None = None
        self._reader = AnswerReader()
        self._waiter: asyncio.Future[Answer] | None = None
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(_SEND_BYTES_MAX)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.close()  # nobody asked
            return
        try:
            answer = self._reader.feed(data)
        except BadAnswerError as fault:
            self._waiter.set_exception(fault)
            self.close()
            return
        if answer is not None:
            if not answer.keeps:
                self.close()
            self._waiter.set_result(answer)

    def connection_lost(self, fault: Exception | None) -> None:
        self.is_open = False
        if self._waiter is not None and not self._waiter.done():
            reason = str(fault) if fault else "the connection was closed"
            self._waiter.set_exception(UnreachableError(f"{self._shown}: {reason}", was_sent=True))

    def is_usable(self) -> bool:
        """Whether nothing came since the last answer; the loop may not have looked yet."""
        if not self.is_open or self._transport is None:
            return False
        found = self._transport.get_extra_info("socket")
        return found is not None and not has_news(found.fileno())

    async def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its answer; the caller has the deadline."""
        if not self.is_open or self._transport is None:
            raise UnreachableError(f"{self._shown}: the connection was closed", was_sent=False)
        self._reader = AnswerReader()
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            if not self._waiter.done() or self._waiter.cancelled():
                self.close()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()


class AsyncConnections:
    """Connections to one address, at most so many."""

    def __init__(self, address: Address, links_max: int) -> None:
        self._address = address
        self._idle: deque[AsyncConnection] = deque()
        self._free = asyncio.Semaphore(links_max)
        self._is_closed = False

    async def ask(self, request: bytes) -> Answer:
        """One call on an idle connection or a new one."""
        async with self._free:
            link = self._maybe_idle() or await self._connect()
            answer = await link.ask(request)
            if self._is_closed:
                link.close()
            elif link.is_open:
                self._idle.append(link)
            return answer

    def _maybe_idle(self) -> AsyncConnection | None:
        while self._idle:
            link = self._idle.pop()
            if link.is_usable():
                return link
            link.close()
        return None

    async def _connect(self) -> AsyncConnection:
        address = self._address
        if self._is_closed:
            raise UnreachableError("the client is closed", was_sent=False)
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.create_connection(
                lambda: AsyncConnection(address.shown), address.host, address.port, ssl=address.tls
            )
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise UnreachableError(f"{address.shown}: {reason}", was_sent=False) from fault
        return link

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()
