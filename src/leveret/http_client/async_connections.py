"""Connections of an event loop: asyncio protocols, one call at a time on each.

An `AsyncConnectionPool` keeps idle connections and limits how many there are. A call that finds no
free connection waits for one within its deadline. The connection of a cancelled call is closed: its
answer could otherwise be taken for the answer to the next call.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

from leveret.errors import system_reason
from leveret.http_client.address import Address
from leveret.http_client.answers import BODY_BYTES_MAX, Answer, AnswerReader
from leveret.http_client.connections import is_readable
from leveret.http_client.errors import BadAnswerError, UnreachableError
from leveret.http_client.places import Places

# Returns the addresses of a host that a connection may go to.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

CONNECTIONS_MAX: Final = 100  # the default of a client
_SEND_BYTES_MAX: Final = 64 * 1024 * 1024  # asyncio's own limit would split a large batch


class AsyncConnection(asyncio.Protocol):
    """One connection; one call at a time."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._transport: asyncio.Transport | None = None
        self._reader = AnswerReader()
        self._waiter: asyncio.Future[Answer] | None = None
        self.has_received = False  # any byte since the last request
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it
        self._transport.set_write_buffer_limits(_SEND_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        if self._waiter is None or self._waiter.done():
            self.close()  # nothing was asked
            return
        try:
            answer = self._reader.feed(data)
        except BadAnswerError as fault:
            self._waiter.set_exception(fault)
            self.close()
            return
        if answer is not None:
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        assert self._waiter is not None
        if not answer.is_reusable:
            self.close()
        self._waiter.set_result(answer)

    def connection_lost(self, fault: Exception | None) -> None:
        self.is_open = False
        if self._waiter is None or self._waiter.done():
            return
        answer = self._reader.feed_end() if fault is None else None
        if answer is not None:
            self._answer(answer)
            return
        reason = system_reason(fault) if fault else "the connection was closed"
        self._waiter.set_exception(UnreachableError(f"{self._shown}: {reason}"))

    def is_usable(self) -> bool:
        """Return True if no byte came since the last answer, not even one that is still unread."""
        if not self.is_open or self._transport is None:
            return False
        found = self._transport.get_extra_info("socket")
        return found is not None and not is_readable(found.fileno())

    async def ask(self, request: bytes, reader: AnswerReader) -> Answer:
        """Send a request and wait for its answer; the caller limits the time."""
        if not self.is_open or self._transport is None:
            raise UnreachableError(f"{self._shown}: the connection was closed", was_sent=False)
        self._reader = reader
        self._waiter = asyncio.get_running_loop().create_future()
        self.has_received = False
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


class AsyncConnectionPool:
    """Connections to one address, at most `connections_max`.

    `cuts_bodies`: a body over `body_bytes_max` is cut off instead of being an error.
    """

    def __init__(
        self,
        address: Address,
        connections_max: int = CONNECTIONS_MAX,
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
        cuts_bodies: bool = False,
        resolve: Resolver | None = None,
    ) -> None:
        self._address = address
        self._resolve = resolve  # None: every address of the host will do
        self._body_bytes_max = body_bytes_max
        self._cuts_bodies = cuts_bodies
        self._idle: deque[AsyncConnection] = deque()
        self._busy: set[AsyncConnection] = set()
        self._places = Places(connections_max)
        self._is_closed = False

    async def ask(self, request: bytes, *, on_new_connection: bool = False) -> Answer:
        """Send a request on an idle connection or a new one."""
        if not self._places.try_take():
            await self._places.wait()
        try:
            kept = None if on_new_connection else self._maybe_idle()
            connection = kept or await self._connect()
            self._busy.add(connection)
            try:
                reader = AnswerReader(self._body_bytes_max, cuts=self._cuts_bodies)
                answer = await connection.ask(request, reader)
            except UnreachableError as fault:
                fault.was_idle = kept is not None and not connection.has_received
                raise
            finally:
                self._busy.discard(connection)
            if self._is_closed:
                connection.close()
            elif connection.is_open:
                self._idle.append(connection)
            return answer
        finally:
            self._places.give_back()

    def _maybe_idle(self) -> AsyncConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        return None

    async def _connect(self) -> AsyncConnection:
        address = self._address
        self._require_open()
        try:
            connection = await self._connect_to_first()
        except (OSError, UnicodeError) as fault:
            reason = system_reason(fault)
            raise UnreachableError(f"{address.shown}: {reason}", was_sent=False) from fault
        try:
            self._require_open()
        except UnreachableError:
            connection.close()
            raise
        return connection

    async def _connect_to_first(self) -> AsyncConnection:
        """Connect to the first address of the host that answers."""
        address = self._address
        loop = asyncio.get_running_loop()
        hosts: Sequence[str] = [address.host]
        if self._resolve is not None:
            hosts = await self._resolve(address.host, address.port)
        server = address.host if address.tls is not None else None
        fault: OSError | None = None
        for host in hosts:
            try:
                _, connection = await loop.create_connection(
                    lambda: AsyncConnection(address.shown),
                    host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=server,
                )
                return connection
            except OSError as found:
                fault = found
        raise fault or OSError("the host has no address")

    def _require_open(self) -> None:
        if self._is_closed:
            raise UnreachableError("the client is closed", was_sent=False)

    def close(self) -> None:
        """Close the idle connections, and each other one after its call."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def abort(self) -> None:
        """Close every connection; calls that are under way fail."""
        self.close()
        for connection in list(self._busy):
            connection.close()
