"""A bus for programs without an event loop: it runs a `Bus` in a thread of its own.

    bus = SyncBus(Bus("amqp://guest:guest@localhost/", fanout.layout("shop-billing")))

    @bus.on(OrderPlaced)
    def bill(event: OrderPlaced) -> None: ...

    with bus:
        bus.publish(OrderPlaced(1))

Every thread may call it, except the thread of the bus: a plain handler may publish by it, and an
`async def` handler awaits the `Bus` instead.
"""

import asyncio
import concurrent.futures
import contextlib
import inspect
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar

from leveret.bus.bus import START_TIMEOUT_S, Bus
from leveret.bus.dispatch import HandlerDecorator, M
from leveret.bus.errors import (
    BusError,
    NotConnectedError,
)
from leveret.bus.health import Health
from leveret.bus.outgoing_message import PublishOptions
from leveret.bus.retry_policy import RetryPolicy
from leveret.bus.stop_signals import ExitOnTerminate, StoppedBySignal

JOIN_TIMEOUT_S: Final = 10.0
WAKE_S: Final = 1.0  # between two looks whether a signal came

E = TypeVar("E")
T = TypeVar("T")


class SyncBus:
    """Runs a bus in a thread, and waits for the result of each call."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._exit_on_terminate = ExitOnTerminate()
        self._ended = threading.Event()

    def on(
        self, event: type[E], *, retry: RetryPolicy | None = None, timeout_s: float | None = None
    ) -> HandlerDecorator[E]:
        """Register a handler for an event class. Plain functions run in a pool of threads."""
        return self._bus.on(event, retry=retry, timeout_s=timeout_s)

    def on_message(
        self, *, retry: RetryPolicy | None = None, timeout_s: float | None = None
    ) -> Callable[[M], M]:
        """Register the handler of all other messages."""
        return self._bus.on_message(retry=retry, timeout_s=timeout_s)

    def asyncapi(self) -> dict[str, Any]:
        """Describe the events of this service in the format of AsyncAPI."""
        return self._bus.asyncapi()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Connect, declare the topology and consume."""
        if self._thread is not None:
            raise RuntimeError("the bus is already started")
        self._ended.clear()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="leveret-bus", daemon=True)
        self._thread.start()
        try:
            self._exit_on_terminate.set()
            self._call(self._bus.start(timeout_s))
        except BaseException:
            self.stop()  # a signal may come while the first handlers run
            raise

    def run(self) -> None:
        """Start, and run until another thread calls `stop`, or until SIGTERM or SIGINT.

        Running handlers are finished first, within `stop_deadline_s`.
        """
        with contextlib.suppress(KeyboardInterrupt, StoppedBySignal), self:
            while not self._ended.wait(WAKE_S):  # a signal that another thread takes wakes nobody
                pass

    def stop(self, deadline_s: float | None = None) -> None:
        """Finish running handlers and open publishes, then stop. The deadline ends the waiting."""
        if self._thread is not None:
            try:
                self._call(self._bus.stop(deadline_s))
            finally:
                self._end_thread()

    def publish(self, event: object, options: PublishOptions | None = None) -> str:
        """Publish an event, wait for the confirm, and return the message id."""
        return self._call(self._bus.publish_with(event, options or PublishOptions()))

    def send(self, event: object, options: PublishOptions | None = None) -> str:
        """Publish without waiting for the confirm."""
        return self._call(self._bus.send(event, options))

    def publish_within(
        self,
        connection: sqlite3.Connection,
        event: object,
        options: PublishOptions | None = None,
        *,
        key: str = "",
    ) -> str:
        """Write an event to a SqliteOutbox, in the transaction of this connection.

        Raise EncodeError or TooLargeError, and RuntimeError if the outbox needs an event loop.
        """
        # In this thread, because SQLite ties a connection to its thread.
        given = options or PublishOptions()
        message_id, added = self._bus.add_to_outbox(connection, event, given, key)
        if added is None:
            return message_id
        if inspect.iscoroutine(added):
            added.close()  # nothing was written
        raise RuntimeError(
            "this outbox writes in an event loop: use a SqliteOutbox with a SyncBus,"
            " or await Bus.publish_within"
        )

    def wait_for_confirms(self, timeout_s: float) -> bool:
        """Return True if everything that `send` published is confirmed."""
        return self._call(self._bus.wait_for_confirms(timeout_s))

    def take_failures(self) -> list[BusError]:
        """Return why publishes of `send` failed, since the last call."""
        return self._bus.take_failures()

    def health(self) -> Health:
        """Ask the broker whether it lists our consumer."""
        return self._call(self._bus.health())

    def metrics(self) -> str:
        """Return the metrics of this bus, in the format of Prometheus."""
        return self._bus.metrics()

    def __enter__(self) -> "SyncBus":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        assert self._loop is not None
        try:
            self._loop.run_forever()
        finally:
            self._cancel_all(self._loop)
            self._loop.close()

    def _cancel_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the calls that came while the bus stopped, because threads wait for them."""
        loop.run_until_complete(asyncio.sleep(0))  # the last calls become tasks
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        # Every call of a bus has a deadline of its own, so this one needs none.
        loop, thread = self._loop, self._thread
        try:
            if loop is None or thread is None:
                raise NotConnectedError("the bus is not started")
            if threading.current_thread() is thread:
                raise RuntimeError("an async handler must await the Bus, not call the SyncBus")
            if not thread.is_alive():
                text = (
                    "the bus was started before this process was forked: make one in each process"
                )
                raise NotConnectedError(text)
            running = asyncio.run_coroutine_threadsafe(work, loop)
        except BaseException:
            work.close()
            raise
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise NotConnectedError("the bus was stopped") from None

    def _end_thread(self) -> None:
        assert self._loop is not None and self._thread is not None
        loop, thread = self._loop, self._thread
        self._exit_on_terminate.reset()
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(JOIN_TIMEOUT_S)
        self._loop = None
        self._thread = None
        self._ended.set()
