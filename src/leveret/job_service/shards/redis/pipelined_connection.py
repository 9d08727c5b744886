"""One connection to Redis that pipelines the commands of many concurrent callers.

Commands that come while others are on their way wait, and are sent together after the answers to
the others. The fixed cost of a command, two system calls and a deadline, is then shared by all
callers. A lone command does not wait, and is sent without a task of its own.

No command is ever sent twice. When the connection fails or the deadline passes, every waiting
command fails: it is not known which of them Redis has carried out. So a connection that has rested
is asked for a sign of life first, and replaced if it is silent: the network may have lost it.

A *run* of Redis is the time from its start to its end. After a restart, or a failover to a replica,
Redis may hold a state that is some moments old. A command that relies on the newest state names the
run for which it was made, and is not sent to another.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import hiredis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ResponseError

from leveret.job_service.shards import keepalive
from leveret.job_service.shards.countdown import Countdown, Deadline

COMMANDS_MAX: Final = 256  # sent together
BYTES_MAX: Final = 16 * 1024 * 1024  # sent together, unless a single command is larger
_RUN: Final = re.compile(rb"run_id:(\w+)")
_NOT_WHOLE: Final = object()  # hiredis: the answer has not come completely
_CLOSED: Final = "the connection was closed"
PING: Final = b"*1\r\n$4\r\nPING\r\n"

log = logging.getLogger(__name__)

PendingCommand = tuple[bytes, bytes, "asyncio.Future[Any]"]  # the command, its run or b"", answer


class PipelinedConnection:
    """Sends the commands of one node; Redis answers them in order."""

    def __init__(self, pool: Any, deadline_s: float) -> None:
        self._pool = pool  # makes connections: address, login, TLS
        self._deadline_s = deadline_s
        self._link: _Link | None = None
        self._waiting: list[PendingCommand] = []
        self._connecting: asyncio.Task[None] | None = None  # or checks the connection
        self._heard_s = 0.0  # when Redis last answered, by the clock of the event loop
        self._is_asked = False  # commands are on their way
        self._asked_s = 0.0  # when they were sent
        # Looks for answers that are late. It stays when answers come: a timer for each command
        # would cost more than sending it.
        self._watch: Countdown | None = None
        self.run = b""  # the run of Redis that the last connection has reached; empty: not known

    async def ask(self, command: bytes, run: bytes = b"") -> Any:
        """Return the answer to an encoded command; ResponseError where Redis refuses it.

        A command for a run that has ended is not sent: ResponseError.
        """
        return await self.begin(command, run)

    def begin(self, command: bytes, run: bytes = b"") -> "asyncio.Future[Any]":
        """Begin `ask` without a task; return the future of the answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((command, run, answer))
        if self._is_asked or self._connecting is not None:
            return answer  # it is sent after the answers to others
        if self._link is None:
            self._connecting = loop.create_task(self._connect())
        elif loop.time() - self._heard_s > keepalive.REST_S:
            self._connecting = loop.create_task(self._check(self._link))
        else:
            self._send(self._link)
        return answer

    async def close(self) -> None:
        """Close the connection; waiting commands fail."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        self._fail(ConnectionLost("the store was closed"))
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def _connect(self) -> None:
        """Connect, and send the commands that wait."""
        connection = self._pool.make_connection()
        try:
            async with Deadline(self._deadline_s):
                await connection.connect()
                self.run = await _run_of(connection)
                if connection._reader.at_eof():  # `_Link` would not see the end any more
                    raise ConnectionLost(_CLOSED)
        except BaseException as fault:
            connection._close()
            is_error = isinstance(fault, Exception)
            self._fail(fault if is_error else ConnectionLost("the store was closed"))
            if not is_error:
                raise
        else:
            self._link = _Link(connection, self._on_answered, self._on_lost)
            self._send(self._link)
        finally:
            self._connecting = None

    async def _check(self, link: "_Link") -> None:
        """Send the commands that wait, on a new connection if this one is silent."""
        sign: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        link.send([(PING, b"", sign)])
        await asyncio.wait([sign], timeout=keepalive.SIGN_S)
        if self._link is link and sign.done():
            self._connecting = None
            self._send(link)
            return
        log.info("the connection to Redis gives no sign of life after a rest, and is replaced")
        self._close_link()
        await self._connect()

    def _send(self, link: "_Link") -> None:
        """Send the commands that wait, as many as may be sent together."""
        while self._waiting:
            some = self._of_this_run(self._next())
            if some:
                link.send(some)
                loop = asyncio.get_running_loop()
                self._is_asked, self._asked_s = True, loop.time()
                if self._watch is None:
                    self._watch = Countdown(self._deadline_s, self._on_watch)
                return

    def _on_watch(self) -> None:
        """Fail if the answers are late."""
        self._watch = None
        if not self._is_asked:
            return
        loop = asyncio.get_running_loop()
        end_s = self._asked_s + self._deadline_s
        if loop.time() < end_s:
            self._watch = Countdown(end_s - loop.time(), self._on_watch)
        else:
            self._fail(TimeoutError())

    def _next(self) -> list[PendingCommand]:
        count = size = 0
        for command, _, _ in self._waiting:
            size += len(command)
            if count and (count >= COMMANDS_MAX or size > BYTES_MAX):
                break
            count += 1
        some, self._waiting = self._waiting[:count], self._waiting[count:]
        return some

    def _of_this_run(self, some: list[PendingCommand]) -> list[PendingCommand]:
        """Refuse commands for another run of Redis; return the others."""
        if all(not run or run == self.run for _, run, _ in some):
            return some
        for _, run, answer in some:
            if run and run != self.run and not answer.done():
                answer.set_exception(ResponseError("Redis has been restarted"))
        return [each for each in some if not each[1] or each[1] == self.run]

    def _on_answered(self, link: "_Link") -> None:
        """Go on after all commands that were sent are answered."""
        self._heard_s = asyncio.get_running_loop().time()
        self._is_asked = False
        if self._connecting is None:
            self._send(link)

    def _on_lost(self, fault: BaseException) -> None:
        if self._connecting is None:
            self._fail(fault)
        else:  # `_check` goes on; no command of a caller is on its way
            for sign in self._close_link():
                sign.cancel()

    def _fail(self, fault: BaseException) -> None:
        """Close the connection; all commands fail."""
        self._is_asked = False
        waiting, self._waiting = self._waiting, []
        for answer in self._close_link() + [answer for _, _, answer in waiting]:
            if not answer.done():
                answer.set_exception(fault)
                answer.exception()  # retrieved, so that asyncio does not log it

    def _close_link(self) -> "list[asyncio.Future[Any]]":
        """Close the connection; return the answers that have not come."""
        link, self._link = self._link, None
        return [] if link is None else link.close()


class _Link(asyncio.Protocol):
    """The connection as a protocol of asyncio.

    The library connects, with its login and TLS, and then gives up its transport: its own streams
    cost a third of the time of an enqueue.
    """

    def __init__(
        self,
        connection: Any,
        on_answered: Callable[["_Link"], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._connection = connection
        self._on_answered = on_answered
        self._on_failed = on_failed
        self._answers: deque[asyncio.Future[Any]] = deque()  # of the commands on their way
        self._reader = hiredis.Reader(
            replyError=DefaultParser.parse_error, notEnoughData=_NOT_WHOLE
        )
        self._transport: asyncio.Transport = connection._writer.transport
        self._transport.set_protocol(self)
        self._is_closed = False

    def send(self, some: list[PendingCommand]) -> None:
        self._answers.extend([answer for _, _, answer in some])
        self._transport.write(b"".join([command for command, _, _ in some]))

    def data_received(self, data: bytes) -> None:
        reader, answers = self._reader, self._answers
        try:
            reader.feed(data)
            while answers and (found := reader.gets()) is not _NOT_WHOLE:
                if isinstance(found, ConnectionLost):  # Redis is loading, or refuses the client
                    raise found
                answer = answers.popleft()
                if answer.done():
                    continue
                if isinstance(found, ResponseError):
                    answer.set_exception(found)
                else:
                    answer.set_result(found)
        except (ConnectionLost, hiredis.HiredisError) as fault:
            self._lose(fault)
            return
        if not answers and not self._is_closed:
            self._on_answered(self)

    def eof_received(self) -> None:
        self._lose(ConnectionLost(_CLOSED))

    def connection_lost(self, fault: Exception | None) -> None:
        self._lose(fault or ConnectionLost(_CLOSED))

    def _lose(self, fault: Exception) -> None:
        if not self._is_closed:
            self._on_failed(fault)

    def close(self) -> "list[asyncio.Future[Any]]":
        """Close the connection; return the answers that have not come."""
        self._is_closed = True
        self._transport.abort()
        self._connection._close()
        answers, self._answers = list(self._answers), deque()
        return answers


async def _run_of(connection: Any) -> bytes:
    """Return the run of the Redis of a connection; empty if this user may not ask for it."""
    await connection.send_command("INFO", "server", check_health=False)
    try:
        text = await connection.read_response(disconnect_on_error=False)
    except ResponseError:
        return b""
    found = _RUN.search(text if isinstance(text, bytes) else str(text).encode())
    return found[1] if found else b""


def encode_words(words: Iterable[bytes]) -> bytes:
    """Return words in the protocol of Redis; `encode_array_head` begins the command."""
    parts: list[bytes] = []
    for word in words:
        parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return b"".join(parts)


def encode_array_head(count: int) -> bytes:
    """Return the beginning of a command with so many words."""
    return b"*%d\r\n" % count
