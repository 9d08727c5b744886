"""Keeps one session with a broker alive: connects, watches, and connects again after any loss.

A session is a connection with one channel and everything that was set up on it. It is lost as a
whole: by the socket, by a channel error, by a cancelled consumer, by a queue that is gone, or by a
broker that does not answer a probe. The link then drops it and opens a new one, which applies the
whole topology again. That one way of recovering is taken for every loss, so it is always tested.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import aiormq.abc

from leveret.bus.connections.connection import BrokerConnection
from leveret.bus.policy import Backoff
from leveret.errors import BusError, NotConnectedError, TopologyMismatchError

_log: Final = logging.getLogger(__name__)


class Session:
    """A connection with one channel, until it is lost."""

    def __init__(
        self, connection: BrokerConnection, channel: aiormq.abc.AbstractChannel, since_ms: int
    ) -> None:
        self.connection = connection
        self.channel = channel
        self.since_ms = since_ms
        self.is_leaving = False  # nothing is to be found wrong any more
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        connection.closing.add_done_callback(self._on_closed("the connection was closed"))
        channel.closing.add_done_callback(self._on_closed("the channel was closed"))

    @property
    def is_lost(self) -> bool:
        return self._lost.done()

    def lose(self, reason: str) -> None:
        """The session is of no use any more."""
        if not self._lost.done():
            self._lost.set_result(reason)

    async def probe(self) -> str:
        """Ask the broker whether all is there; the reason why not, or nothing."""
        return ""

    async def watch(self, every_s: float) -> str:
        """Wait until the session is lost; why."""
        while True:
            done, _ = await asyncio.wait({self._lost}, timeout=every_s)
            reason = self._lost.result() if done else await self.checked()
            if reason:
                self.lose(reason)
                return reason

    async def checked(self) -> str:
        """A probe whose faults are reasons too."""
        if self.is_leaving:
            return ""
        try:
            return await self.probe()
        except Exception as fault:
            return _text(fault)

    def _on_closed(self, what: str) -> "Callable[[asyncio.Future[Any]], None]":
        def on_closed(closing: "asyncio.Future[Any]") -> None:
            fault = None if closing.cancelled() else closing.exception()
            self.lose(what if fault is None else f"{what}: {_text(fault)}")

        return on_closed


S = TypeVar("S", bound=Session)


class Link(Generic[S]):
    """One session after another."""

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
        self.fault: BusError | None = None  # what the last attempt to connect ended with
        self.sessions = 0  # opened so far

    @property
    def session(self) -> S | None:
        """The session that works, as far as is known."""
        found = self._session
        return None if found is None or found.is_lost else found

    def start(self) -> None:
        """Begin to connect."""
        assert self._running is None
        self._running = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    async def ready(self, timeout_s: float) -> S:
        """A session that works. Raises NotConnectedError, or TopologyMismatchError while there is
        none."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(self._is_decided)
        except TimeoutError:
            raise self.fault or NotConnectedError(f"no broker within {timeout_s:.3f} s") from None
        if self.session is not None:
            return self.session
        raise self.fault or NotConnectedError("the bus was stopped")

    def _is_decided(self) -> bool:
        is_hopeless = isinstance(self.fault, TopologyMismatchError)
        return self.session is not None or self._is_stopping or is_hopeless

    def end(self) -> S | None:
        """Connect no more after the session that there is."""
        self._is_stopping = True
        session = self.session
        if session is not None:
            session.is_leaving = True
        return session

    async def stop(self) -> None:
        """Close the session and connect no more."""
        self._is_stopping = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        await self._tell()

    async def _run(self) -> None:
        while not self._is_stopping:
            self._session = await self._maybe_open()
            await self._tell()
            if self._session is not None:
                await self._watch(self._session)
            await asyncio.sleep(self._backoff.next_s())

    async def _maybe_open(self) -> S | None:
        try:
            session = await self._open_session()
        except BusError as fault:
            self.fault = fault
        except asyncio.CancelledError:
            # aiormq may end a call by a cancellation that nobody asked for.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self.fault = NotConnectedError("the connection was lost at once")
        except Exception as fault:
            self.fault = NotConnectedError(_text(fault))
        else:
            self.fault = None
            return session
        _log.warning("%s: %s", self._name, self.fault)
        return None

    async def _watch(self, session: S) -> None:
        self.sessions += 1
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            reason = await session.watch(self._probe_s)
            _log.warning("%s lost its session: %s", self._name, reason)
            # One that is lost at once, again and again, is not to be opened at full speed.
            if loop.time() - began_s > self._probe_s:
                self._backoff.reset()
        finally:
            self._session = None
            session.lose("the bus was stopped")
            await session.connection.close()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _text(fault: BaseException) -> str:
    return str(fault) or type(fault).__name__
