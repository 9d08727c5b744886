"""A connection that recovers: it connects, watches the broker, and reconnects after any loss.

A session is a connection with one channel and everything that was set up on it. It is lost as a
whole, for one of these reasons: the socket closed, a channel error, a cancelled consumer, a missing
queue, or a probe without an answer. `RecoveringConnection` then opens a new session, which declares
the whole topology again. Every loss is repaired in this one way, so this way is well tested.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import aiormq.abc

from leveret.bus.connections.connection import BrokerConnection
from leveret.bus.errors import (
    BusError,
    LoginRefusedError,
    NotConnectedError,
    TopologyMismatchError,
)
from leveret.bus.retry_policy import Backoff

_log: Final = logging.getLogger(__name__)


class BrokerSession:
    """A connection with one channel, until it is lost."""

    def __init__(
        self, connection: BrokerConnection, channel: aiormq.abc.AbstractChannel, since_ms: int
    ) -> None:
        self.connection = connection
        self.channel = channel
        self.since_ms = since_ms
        self.is_stopping = False  # the bus stops: probes find nothing wrong any more
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        connection.closing.add_done_callback(self._on_closed("the connection was closed"))
        channel.closing.add_done_callback(self._on_closed("the channel was closed"))

    @property
    def is_lost(self) -> bool:
        return self._lost.done()

    def mark_lost(self, reason: str) -> None:
        """Note why the session cannot be used any more."""
        if not self._lost.done():
            self._lost.set_result(reason)

    async def probe(self) -> str:
        """Ask the broker whether all is well. Return what is wrong, or an empty text."""
        return ""

    async def watch(self, every_s: float) -> str:
        """Wait until the session is lost. Return the reason."""
        while True:
            done, _ = await asyncio.wait({self._lost}, timeout=every_s)
            reason = self._lost.result() if done else await self.check()
            if reason:
                self.mark_lost(reason)
                return reason

    async def check(self) -> str:
        """Probe, and return errors of the probe as text too."""
        reason = "" if self.is_stopping else await self._reason()
        # A stop that began meanwhile has cancelled the consumer.
        return "" if self.is_stopping else reason

    async def _reason(self) -> str:
        try:
            return await self.probe()
        except Exception as fault:
            return _text(fault)

    def _on_closed(self, what: str) -> "Callable[[asyncio.Future[Any]], None]":
        def on_closed(closing: "asyncio.Future[Any]") -> None:
            fault = None if closing.cancelled() else closing.exception()
            self.mark_lost(what if fault is None else f"{what}: {_text(fault)}")

        return on_closed


S = TypeVar("S", bound=BrokerSession)


class RecoveringConnection(Generic[S]):
    """Opens one session after another until it is stopped."""

    def __init__(
        self, name: str, open_session: Callable[[], Awaitable[S]], backoff: Backoff, probe_s: float
    ) -> None:
        self._name = name
        self._open_session = open_session
        self._backoff = backoff
        self._probe_s = probe_s
        self._session: S | None = None
        self._changed = asyncio.Condition()
        self._running: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.last_error: BusError | None = None  # of the last attempt to connect
        self.session_count = 0  # opened so far

    @property
    def session(self) -> S | None:
        """The session, None while there is none that is known to work."""
        found = self._session
        return None if found is None or found.is_lost else found

    def start(self) -> None:
        """Begin to connect."""
        assert self._running is None
        self._running = asyncio.get_running_loop().create_task(self._keep_open(), name=self._name)

    async def wait_for_session(self, timeout_s: float) -> S:
        """Return a session that works. Raise NotConnectedError or TopologyMismatchError."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(self._is_decided)
        except TimeoutError:
            raise self.last_error or NotConnectedError(
                f"no broker within {timeout_s:.3f} s"
            ) from None
        if self.session is not None:
            return self.session
        raise self.last_error or NotConnectedError("the bus was stopped")

    def _is_decided(self) -> bool:
        is_hopeless = isinstance(self.last_error, TopologyMismatchError) or self._is_refused
        return self.session is not None or self._is_stopping or is_hopeless

    @property
    def _is_refused(self) -> bool:
        """True if the login is wrong. A login that worked before may work again."""
        return isinstance(self.last_error, LoginRefusedError) and not self.session_count

    def stop_reconnecting(self) -> S | None:
        """Keep the present session, but open no other after it. Return the present one."""
        self._is_stopping = True
        session = self.session
        if session is not None:
            session.is_stopping = True
        return session

    async def stop(self) -> None:
        """Close the session and open no other. A second call waits for the first one."""
        self._is_stopping = True
        if self._running is not None:
            if not self._running.cancelling():  # a second cancellation would tear the closing off
                self._running.cancel()
            await asyncio.wait({self._running})
        await self._notify()

    async def _keep_open(self) -> None:
        while not self._is_stopping:
            self._session = await self._maybe_open()
            await self._notify()
            if self._session is not None:
                await self._watch(self._session)
            await asyncio.sleep(self._backoff.next_s())

    async def _maybe_open(self) -> S | None:
        try:
            session = await self._open_session()
        except BusError as fault:
            self.last_error = fault
        except asyncio.CancelledError:
            # aiormq may cancel a call by itself. Only a cancellation of this task is passed on.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self.last_error = NotConnectedError("the connection was lost at once")
        except Exception as fault:
            self.last_error = NotConnectedError(_text(fault))
        else:
            self.last_error = None
            return session
        _log.warning("%s: %s", self._name, self.last_error)
        return None

    async def _watch(self, session: S) -> None:
        self.session_count += 1
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            reason = await session.watch(self._probe_s)
            _log.warning("%s lost its session: %s", self._name, reason)
            # A session that is lost at once, again and again, must not be reopened at full speed.
            if loop.time() - began_s > self._probe_s:
                self._backoff.reset()
        finally:
            self._session = None
            session.mark_lost("the bus was stopped")
            await session.connection.close()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _text(fault: BaseException) -> str:
    return str(fault) or type(fault).__name__
