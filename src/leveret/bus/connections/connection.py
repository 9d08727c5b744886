"""One connection to a broker that answers in time or is cut.

aio-pika's plain connection, with two things added. Every call has a deadline, which large messages
on their way extend: `ask` waits for it without cancelling the call, because a cancelled call of
aiormq may itself wait for a socket that takes nothing more. And the socket can be cut at once: a
peer that is silent is not waited for. Nothing is recovered here; whoever lost a connection opens a
new one.
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

from leveret.bus.connections.transports import Transports
from leveret.bus.settings import BusSettings
from leveret.errors import ConfigError, NotConnectedError

CLOSE_S: Final = 1.0  # for goodbyes
# A broker that passes so much within the time for an answer is not silent. Heartbeats are less.
BUSY_BYTES: Final = 4_096

_T = TypeVar("_T")
_log: Final = logging.getLogger(__name__)


class SilentBrokerError(Exception):
    """The broker did not answer in time; the connection was cut."""


def require_address(url: str) -> None:
    """Raise ConfigError for what is no address of a broker; a wrong one is not tried for long."""
    try:
        address = URL(url)
        is_usable = address.scheme in ("amqp", "amqps") and bool(address.host)
    except ValueError:
        is_usable = False
    if not is_usable:
        # It is not repeated here, because it may have a password in it.
        form = "amqp://user:password@host:port/vhost, with special characters percent-encoded"
        raise ConfigError(f"the broker's address is {form}")


class _Connection(aio_pika.Connection):
    PARAMETERS = (
        *aio_pika.Connection.PARAMETERS,
        ConnectionParameter("transport_factory", lambda factory: factory, is_kwarg=True),
    )


class BrokerConnection:
    """One open connection."""

    def __init__(
        self, connection: _Connection, transports: Transports, settings: BusSettings
    ) -> None:
        self._connection = connection
        self._transports = transports
        self._answer_s = settings.answer_timeout_s
        assert connection.transport is not None
        self._underlay = connection.transport.connection

    @classmethod
    async def open(
        cls, url: str, name: str, settings: BusSettings, *, is_careful: bool = False
    ) -> "BrokerConnection":
        """Connect and log in. Raises NotConnectedError.

        A careful one reads what made the client library give up another one before.
        """
        transports = Transports(is_careful=is_careful)
        address = URL(url).update_query(heartbeat=str(settings.heartbeat_s), name=name)
        connection = _Connection(address, transport_factory=transports)
        try:
            await connection.connect(timeout=settings.connect_timeout_s)
        except asyncio.CancelledError:
            transports.cut()
            raise
        except (OSError, TimeoutError, aiormq.AMQPError) as fault:
            transports.cut()
            await connection.close()  # nothing is open, but it would look after itself later
            text = str(fault) or type(fault).__name__
            raise NotConnectedError(f"{_without_password(address)}: {text}") from fault
        return cls(connection, transports, settings)

    @property
    def server_properties(self) -> Mapping[str, Any]:
        return self._underlay.server_properties

    @property
    def frame_bytes_max(self) -> int:
        """As agreed with the broker; 0 is no limit."""
        return int(self._underlay.connection_tune.frame_max or 0)

    @property
    def closing(self) -> "asyncio.Future[Any]":
        """Done when the connection is lost or closed."""
        return self._underlay.closing

    async def channel(self) -> aiormq.abc.AbstractChannel:
        """A channel with publisher confirms, on which a returned publish raises."""
        opening = self._underlay.channel(publisher_confirms=True, on_return_raises=True)
        return await self.ask(opening)

    async def ask(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Wait for the answer to a call. Without one in time, cut the connection: Silent."""
        asking = asyncio.get_running_loop().create_task(call)
        try:
            done = await self._is_answered(asking)
        except asyncio.CancelledError:
            asking.cancel()
            asking.add_done_callback(_forget)
            raise
        if not done:
            asking.add_done_callback(_forget)
            self.cut()
            raise SilentBrokerError(f"the broker did not answer for {self._answer_s} s")
        if asking.cancelled():
            raise SilentBrokerError("the channel was closed")
        return asking.result()

    async def _is_answered(self, asking: "asyncio.Task[Any]") -> bool:
        """Whether a call is over in time; while much passes, the answer may stand behind it."""
        passed_bytes = self._transports.passed_bytes
        while True:
            done, _ = await asyncio.wait({asking}, timeout=self._answer_s)
            before_bytes, passed_bytes = passed_bytes, self._transports.passed_bytes
            if done or passed_bytes - before_bytes < BUSY_BYTES:
                return bool(done)

    async def is_blocked(self) -> bool:
        """Whether the broker takes no publishes now."""
        try:
            async with asyncio.timeout(0.01):
                await self._underlay.ready()
        except TimeoutError:
            return True
        return False

    def cut(self) -> None:
        """Drop the socket, without goodbye."""
        self._transports.cut()

    async def close(self) -> None:
        """Say goodbye, shortly; then cut."""
        # A close of aio-pika waits for a callback too, which may have been cancelled, and does not
        # end by a cancellation: what it closes is closed here, and it finds nothing left to do.
        self._connection.transport = None
        await self._connection.close()
        goodbye = self._underlay.close(aiormq.exceptions.ConnectionClosed)
        closing = asyncio.get_running_loop().create_task(goodbye)
        closing.add_done_callback(_forget)
        try:
            await asyncio.wait({closing}, timeout=CLOSE_S)
        finally:
            self.cut()
        if not closing.done():
            await asyncio.wait({closing}, timeout=CLOSE_S)
            closing.cancel()


def _forget(task: "asyncio.Task[Any]") -> None:
    """Nobody waits for this one any more; its end is not an error."""
    with contextlib.suppress(asyncio.CancelledError):
        if (fault := task.exception()) is not None:
            _log.debug("a call ended by %r after nobody waited for it", fault)


def _without_password(url: URL) -> str:
    return str(url.with_password(None).with_query(None))
