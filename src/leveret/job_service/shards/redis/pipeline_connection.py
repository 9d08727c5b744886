"""One connection to Redis for calls that come by the thousand, many of them at a time.

Commands that are asked for while others are on their way gather, and are sent together when those
are answered: what a lone command costs, two system calls and a deadline, is then the cost of as
many as there are callers. A lone command waits for nobody.

Nothing is ever sent twice. When the connection fails or the deadline passes, everything that waits
fails with it: nobody knows what Redis has done of it.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ResponseError

COMMANDS_MAX: Final = 256  # sent together
BYTES_MAX: Final = 16 * 1024 * 1024  # sent together, unless a single command is larger
IDLE_S: Final = 0.1  # after so long it is looked at whether Redis has closed the connection

Waiting = tuple[bytes, "asyncio.Future[Any]"]


class Line:
    """Commands of one node, answered in the order in which they came."""

    def __init__(self, pool: Any, deadline_s: float) -> None:
        self._pool = pool  # knows how to connect: address, login, TLS
        self._deadline_s = deadline_s
        self._connection: Any = None
        self._waiting: list[Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        self._used_s = 0.0  # by the loop's clock: when the last answer came

    async def ask(self, command: bytes) -> Any:
        """The answer to a packed command; ResponseError where Redis refuses it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((command, answer))
        if self._worker is None:
            self._worker = loop.create_task(self._serve())
        return await answer

    async def close(self) -> None:
        """Let go of the connection; whoever waits still fails by that."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        await self._drop()

    async def _serve(self) -> None:
        some: list[Waiting] = []
        try:
            while self._waiting:
                some = self._next()
                async with asyncio.timeout(self._deadline_s):
                    await self._exchange(some)
        except BaseException as fault:
            await self._drop()
            some += self._waiting
            self._waiting = []
            _fail(some, fault)
            if not isinstance(fault, Exception):
                raise
        finally:
            self._worker = None

    def _next(self) -> list[Waiting]:
        count = size = 0
        for command, _ in self._waiting:
            size += len(command)
            if count and (count >= COMMANDS_MAX or size > BYTES_MAX):
                break
            count += 1
        some, self._waiting = self._waiting[:count], self._waiting[count:]
        return some

    async def _exchange(self, some: list[Waiting]) -> None:
        connection = await self._connected()
        await connection.send_packed_command([command for command, _ in some], check_health=False)
        for _, answer in some:
            try:
                found = await connection.read_response(disconnect_on_error=False)
            except ResponseError as refusal:
                if not answer.done():
                    answer.set_exception(refusal)
            else:
                if not answer.done():
                    answer.set_result(found)
        self._used_s = asyncio.get_running_loop().time()

    async def _connected(self) -> Any:
        if self._connection is not None:
            idle_s = asyncio.get_running_loop().time() - self._used_s
            if idle_s < IDLE_S or await self._is_open():
                return self._connection
            await self._drop()
        self._connection = self._pool.make_connection()
        await self._connection.connect()
        return self._connection

    async def _is_open(self) -> bool:
        """Nothing is to be read of a connection that is open, not even its end."""
        try:
            return not await self._connection.can_read_destructive()
        except (ConnectionLost, OSError):
            return False

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


def _fail(some: list[Waiting], fault: BaseException) -> None:
    shown = fault if isinstance(fault, Exception) else ConnectionLost("the store was closed")
    for _, answer in some:
        if not answer.done():
            answer.set_exception(shown)
            answer.exception()  # seen, also where nobody waits any more


def packed(words: Iterable[bytes]) -> bytes:
    """A command as Redis reads it, or its end: see `head_of`."""
    parts: list[bytes] = []
    for word in words:
        parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return b"".join(parts)


def head_of(count: int) -> bytes:
    """How a command of so many words begins."""
    return b"*%d\r\n" % count
