"""One connection to Redis that pipelines the commands of many concurrent callers.

Commands that come while others are on their way wait, and are sent together after the answers to
the others. The fixed cost of a command, two system calls and a deadline, is then shared by all
callers. A lone command does not wait.

No command is ever sent twice. When the connection fails or the deadline passes, every waiting
command fails: it is not known which of them Redis has carried out.

A *run* of Redis is the time from its start to its end. After a restart, or a failover to a replica,
Redis may hold a state that is some moments old. A command that relies on the newest state names the
run for which it was made, and is not sent to another.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Any, Final

from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ResponseError

COMMANDS_MAX: Final = 256  # sent together
BYTES_MAX: Final = 16 * 1024 * 1024  # sent together, unless a single command is larger
_RUN: Final = re.compile(rb"run_id:(\w+)")
IDLE_S: Final = 0.1  # idle time after which the connection is checked before it is used

PendingCommand = tuple[bytes, bytes, "asyncio.Future[Any]"]  # the command, its run or b"", answer


class PipelinedConnection:
    """Sends the commands of one node; Redis answers them in order."""

    def __init__(self, pool: Any, deadline_s: float) -> None:
        self._pool = pool  # makes connections: address, login, TLS
        self._deadline_s = deadline_s
        self._connection: Any = None
        self._waiting: list[PendingCommand] = []
        self._worker: asyncio.Task[None] | None = None
        self._used_s = 0.0  # when the last answer came, by the clock of the event loop
        self.run = b""  # the run of Redis that the last connection has reached; empty: not known

    async def ask(self, command: bytes, run: bytes = b"") -> Any:
        """Return the answer to an encoded command; ResponseError where Redis refuses it.

        A command for a run that has ended is not sent: ResponseError.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((command, run, answer))
        if self._worker is None:
            self._worker = loop.create_task(self._serve())
        return await answer

    async def close(self) -> None:
        """Close the connection; waiting commands fail."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        await self._drop()

    async def _serve(self) -> None:
        some: list[PendingCommand] = []
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

    def _next(self) -> list[PendingCommand]:
        count = size = 0
        for command, _, _ in self._waiting:
            size += len(command)
            if count and (count >= COMMANDS_MAX or size > BYTES_MAX):
                break
            count += 1
        some, self._waiting = self._waiting[:count], self._waiting[count:]
        return some

    async def _exchange(self, some: list[PendingCommand]) -> None:
        connection = await self._connected()
        some = self._of_this_run(some)
        commands = [command for command, _, _ in some]
        await connection.send_packed_command(commands, check_health=False)
        for _, _, answer in some:
            try:
                found = await connection.read_response(disconnect_on_error=False)
            except ResponseError as refusal:
                if not answer.done():
                    answer.set_exception(refusal)
            else:
                if not answer.done():
                    answer.set_result(found)
        self._used_s = asyncio.get_running_loop().time()

    def _of_this_run(self, some: list[PendingCommand]) -> list[PendingCommand]:
        """Refuse commands for another run of Redis; return the others."""
        if all(not run or run == self.run for _, run, _ in some):
            return some
        for _, run, answer in some:
            if run and run != self.run and not answer.done():
                answer.set_exception(ResponseError("Redis has been restarted"))
        return [each for each in some if not each[1] or each[1] == self.run]

    async def _connected(self) -> Any:
        if self._connection is not None:
            idle_s = asyncio.get_running_loop().time() - self._used_s
            if idle_s < IDLE_S or await self._is_open():
                return self._connection
            await self._drop()
        self._connection = self._pool.make_connection()
        await self._connection.connect()
        self.run = await _run_of(self._connection)
        return self._connection

    async def _is_open(self) -> bool:
        """Return whether the connection is open: it has nothing to read then, not even its end."""
        try:
            return not await self._connection.can_read_destructive()
        except (ConnectionLost, OSError):
            return False

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


async def _run_of(connection: Any) -> bytes:
    """Return the run of the Redis of a connection; empty if this user may not ask for it."""
    await connection.send_command("INFO", "server", check_health=False)
    try:
        text = await connection.read_response(disconnect_on_error=False)
    except ResponseError:
        return b""
    found = _RUN.search(text if isinstance(text, bytes) else str(text).encode())
    return found[1] if found else b""


def _fail(some: list[PendingCommand], fault: BaseException) -> None:
    shown = fault if isinstance(fault, Exception) else ConnectionLost("the store was closed")
    for _, _, answer in some:
        if not answer.done():
            answer.set_exception(shown)
            answer.exception()  # retrieved, so that asyncio does not log it


def encode_words(words: Iterable[bytes]) -> bytes:
    """Return words in the protocol of Redis; `encode_array_head` begins the command."""
    parts: list[bytes] = []
    for word in words:
        parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return b"".join(parts)


def encode_array_head(count: int) -> bytes:
    """Return the beginning of a command with so many words."""
    return b"*%d\r\n" % count
