"""The event loop of one simulated node.

A `NodeLoop` has the part of asyncio's interface that a node uses. All loops of a world share one
`Schedule`. A killed node's loop runs nothing more: its callbacks, timers and tasks are dropped in
the middle of whatever they waited for, as `kill -9` does it.

An error that reaches the loop ends the run: no task of a node may fail unseen.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.simulated.schedule import Event, Schedule

if TYPE_CHECKING:
    from tests.simulated.network import Network, Server

T = TypeVar("T")

THREAD_S_MAX: Final = 0.002  # work that a node gives to a thread is done within this time


class _Timer(asyncio.TimerHandle):
    """A timer that takes its event back when it is cancelled."""

    event: Event | None = None

    def cancel(self) -> None:
        if self.event is not None:
            self.event.cancel()
        super().cancel()


def new_loop(schedule: Schedule, name: str, network: Network) -> NodeLoop:
    """Return the loop of a new process on a node. It leaves most of asyncio's methods out."""
    return NodeLoop(schedule, name, network)  # type: ignore[abstract]


class NodeLoop(asyncio.AbstractEventLoop):
    """The event loop of one node; see the module docstring."""

    def __init__(self, schedule: Schedule, name: str, network: Network) -> None:
        self.schedule = schedule
        self.name = name
        self.network = network
        self.is_alive = True
        self.paused_until_s = 0.0  # the process is stopped or busy until then
        # The tasks that have not ended. A killed node's tasks are kept until the run is over, so
        # that no `finally` of theirs runs before.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        schedule.at_end.append(self._end)

    def when_running(self, callback: Callable[[], None]) -> bool:
        """Return True if the process runs; if it is paused, call `callback` when it goes on."""
        if self.paused_until_s <= self.schedule.now_s:
            return True
        self.schedule.at(self.paused_until_s, callback)
        return False

    def kill(self) -> None:
        """Run nothing on this loop any more."""
        self.is_alive = False

    def _end(self) -> None:
        """End the run: close the tasks that have not ended, whatever they say."""
        self.kill()
        for task in list(self._tasks):
            with contextlib.suppress(BaseException):
                self.run_inside(task.get_coro().close)

    def run_inside(self, callback: Callable[[], T]) -> T:
        """Call a function as this node's code."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return callback()
        finally:
            events._set_running_loop(before)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine as a task of this node."""
        return self.run_inside(lambda: self.create_task(coroutine))

    def run(self, coroutine: Coroutine[Any, Any, T], within_s: float = 60.0) -> T:
        """Run the world until a coroutine of this node is done, and return its result."""
        task = self.start(coroutine)
        self.schedule.run_until(task.done, within_s)
        return task.result()

    def block(self, time_s: float) -> None:
        """Let the running callback take some time, in which nothing else of this node runs."""
        self.paused_until_s = max(self.paused_until_s, self.time()) + time_s

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if self.is_alive and not handle.cancelled():
            if self.when_running(lambda: self._run_handle(handle)):
                self.run_inside(handle._run)

    # Methods of asyncio's event loops.

    def time(self) -> float:
        return self.schedule.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.schedule.after(0.0, lambda: self._run_handle(handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.event = self.schedule.at(when, lambda: self._run_handle(timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: `_Timer` takes its event back itself."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do the work of a thread in one piece, at a later time."""
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if not self.is_alive or done.cancelled():
                return
            try:
                result = func(*args)
            except Exception as fault:
                self.run_inside(partial(done.set_exception, fault))
            else:
                self.run_inside(partial(done.set_result, result))

        self.schedule.after(self.schedule.rng.uniform(0.0, THREAD_S_MAX), work)
        return done

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str = "",
        port: int = 0,
        **options: object,
    ) -> Server:
        return self.network.listen(self, protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str = "",
        port: int = 0,
        **options: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self.network.connect(self, protocol_factory, host, port)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.is_alive

    def is_closed(self) -> bool:
        return not self.is_alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_alive:  # tasks of a killed node end in the middle
            return
        fault = context.get("exception")
        text = "".join(traceback.format_exception(fault)) if fault is not None else ""
        self.schedule.faults.append(f"{self.name}: {context.get('message')}\n{text}")
