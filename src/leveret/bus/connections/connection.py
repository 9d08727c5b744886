"""One connection to a broker, which is aborted if the broker does not answer in time.

This is aio-pika's plain connection with two additions. First, every call has a deadline, which is
extended while large messages pass. `call` does not cancel a late call, because a cancelled call of
aiormq may itself wait for a socket that accepts no more data. Second, the socket can be aborted at
once, without waiting for a silent peer. This module does not reconnect.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

import aio_pika
import aiormq
import aiormq.abc
from aio_pika.abc import ConnectionParameter
from yarl import URL

from leveret.bus.connections.content_frames import ContentReceiver
from leveret.bus.connections.counting_transport import CountingTransportFactory
from leveret.bus.errors import LoginRefusedError, NotConnectedError
from leveret.bus.settings import BusSettings
from leveret.errors import (
    ConfigError,
)

CLOSE_TIMEOUT_S: Final = 1.0
NOT_ALLOWED: Final = 530  # the reply code for a vhost, and for a limit of connections
# If more bytes than this pass within the time for an answer, the broker is busy and not silent.
# Heartbeats are fewer bytes.
BUSY_BYTES: Final = 4_096

_T = TypeVar("_T")
_log: Final = logging.getLogger(__name__)


class NoAnswerError(Exception):
    """The broker did not answer: the connection was aborted, or the channel was closed."""


def require_address(url: str) -> None:
    """Raise ConfigError unless the text is the address of a broker."""
    try:
        address = URL(url)
        is_usable = address.scheme in ("amqp", "amqps") and bool(address.host)
    except ValueError:
        is_usable = False
    if not is_usable:
        # The error does not repeat the address, because it may hold a password.
        form = "amqp://user:password@host:port/vhost, with special characters percent-encoded"
        raise ConfigError(f"the broker's address is {form}")


class _Connection(aio_pika.Connection):
    PARAMETERS = (
        *aio_pika.Connection.PARAMETERS,
        ConnectionParameter("transport_factory", lambda factory: factory, is_kwarg=True),
    )

    def __del__(self) -> None:
        """Do nothing: `BrokerConnection` closes or aborts it.

        aio-pika would make a coroutine that closes it. No loop runs it if there is none by then.
        """


class BrokerConnection:
    """One open connection."""

    def __init__(
        self, connection: _Connection, transport: CountingTransportFactory, settings: BusSettings
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._answer_s = settings.answer_timeout_s
        assert connection.transport is not None
        self._underlay = connection.transport.connection

    @classmethod
    async def open(cls, url: str, name: str, settings: BusSettings) -> "BrokerConnection":
        """Connect and log in. Raise NotConnectedError."""
        transport = CountingTransportFactory()
        address = URL(url).update_query(heartbeat=str(settings.heartbeat_s), name=name)
        connection = _Connection(address, transport_factory=transport)
        try:
            await connection.connect(timeout=settings.connect_timeout_s)
        except asyncio.CancelledError:
            transport.abort()
            raise
        except (OSError, TimeoutError, aiormq.AMQPError) as fault:
            transport.abort()
            await connection.close()  # otherwise aio-pika would clean up later
            raise _connect_error(fault, address, transport) from fault
        return cls(connection, transport, settings)

    @property
    def server_properties(self) -> Mapping[str, Any]:
        return self._underlay.server_properties

    @property
    def frame_bytes_max(self) -> int:
        """The frame size agreed with the broker; 0 means no limit."""
        return int(self._underlay.connection_tune.frame_max or 0)

    @property
    def closing(self) -> "asyncio.Future[Any]":
        """Done when the connection is lost or closed."""
        return self._underlay.closing

    async def channel(self) -> aiormq.abc.AbstractChannel:
        """Open a channel with publisher confirms, on which a returned publish raises."""
        opening = self._underlay.channel(publisher_confirms=True, on_return_raises=True)
        return await self.call(opening)

    def receive(self, channel: aiormq.abc.AbstractChannel, receiver: ContentReceiver) -> None:
        """Pass the messages and confirms of a channel to this receiver, not to the library."""
        assert self._transport.reader is not None
        self._transport.reader.add(channel.number, receiver)

    def send(self, frame: bytes) -> None:
        """Send a frame, together with all others of this turn of the event loop."""
        self._transport.send(frame)

    async def wait_for_room(self) -> None:
        """Wait while the broker does not take what was sent before."""
        await self._transport.wait_for_room()

    async def call(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Return the answer to a call. If none comes in time, abort and raise NoAnswerError."""
        running = asyncio.get_running_loop().create_task(call)
        try:
            done = await self._is_answered(running)
        except asyncio.CancelledError:
            running.cancel()
            running.add_done_callback(_ignore_result)
            raise
        if not done:
            running.add_done_callback(_ignore_result)
            self.abort()
            raise NoAnswerError(f"the broker did not answer for {self._answer_s} s")
        if running.cancelled():
            raise NoAnswerError("the channel was closed")
        return running.result()

    async def _is_answered(self, running: "asyncio.Task[Any]") -> bool:
        """Wait for a call as long as bytes pass, because its answer may be behind them."""
        passed_bytes = self._transport.passed_bytes
        while True:
            done, _ = await asyncio.wait({running}, timeout=self._answer_s)
            before_bytes, passed_bytes = passed_bytes, self._transport.passed_bytes
            if done or passed_bytes - before_bytes < BUSY_BYTES:
                return bool(done)

    async def is_blocked(self) -> bool:
        """Return True while the broker accepts no publishes (connection.blocked)."""
        try:
            async with asyncio.timeout(0.01):
                await self._underlay.ready()
        except TimeoutError:
            return True
        return False

    def abort(self) -> None:
        """Drop the socket without closing AMQP first."""
        self._transport.abort()

    async def close(self) -> None:
        """Close AMQP, with a short deadline, then drop the socket."""
        # aio-pika's close also waits for a callback, which may have been cancelled, and it ignores
        # cancellation. So the transport is closed here, and aio-pika finds nothing left to do.
        self._connection.transport = None
        await self._connection.close()
        close = self._underlay.close(aiormq.exceptions.ConnectionClosed)
        closing = asyncio.get_running_loop().create_task(close)
        closing.add_done_callback(_ignore_result)
        try:
            await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_S)
        finally:
            self.abort()
        if not closing.done():
            await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_S)
            closing.cancel()


def _ignore_result(task: "asyncio.Task[Any]") -> None:
    """Read the exception of a task that nobody awaits, so that asyncio does not log it."""
    with contextlib.suppress(asyncio.CancelledError):
        if (fault := task.exception()) is not None:
            _log.debug("a call that nobody awaits any more ended with %r", fault)


def _connect_error(
    fault: Exception, address: URL, transport: CountingTransportFactory
) -> NotConnectedError:
    """Return the error that says in one sentence why there is no connection."""
    where = _without_password(address)
    if isinstance(
        fault,
        aiormq.exceptions.ProbableAuthenticationError | aiormq.exceptions.AuthenticationError,
    ):
        text = f"the broker refused the user {address.user!r} or its password: {fault}"
        return LoginRefusedError(f"{where}: {text}")
    close = transport.maybe_close()
    if close is None:
        return NotConnectedError(f"{where}: {str(fault) or type(fault).__name__}")
    # RabbitMQ: a limit of connections has the code of a wrong vhost, and may pass.
    if close.reply_code == NOT_ALLOWED and "limit" not in close.reply_text:
        text = f"the broker refused the vhost to the user {address.user!r}: {close.reply_text}"
        return LoginRefusedError(f"{where}: {text}")
    return NotConnectedError(f"{where}: {close.reply_text}")


def _without_password(url: URL) -> str:
    return str(url.with_password(None).with_query(None))
