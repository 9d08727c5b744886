"""Find the handler of a delivery and run it: middleware, idempotency store, handler.

A handler is a coroutine function, or a plain function, which runs in a bounded pool of threads so
that it cannot stop heartbeats. An exception of a handler becomes a HandlerResult; it is never an
error of the bus.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, overload

from leveret.bus import codec, tracing
from leveret.bus import headers as bus_headers
from leveret.bus.delivery import Delivery
from leveret.bus.errors import DecodeError, HandlerTimeoutError, PermanentError
from leveret.bus.handler_result import (
    SUCCESS,
    TOO_EARLY,
    HandlerResult,
    HandlerReturn,
    result_of_error,
    result_of_return,
)
from leveret.bus.idempotency import ClaimState, IdempotencyStore, claim_key
from leveret.bus.keyed_lock import KeyedLock
from leveret.bus.metrics import OTHER
from leveret.bus.retry_policy import RetryPolicy
from leveret.bus.running_handlers import HandlerThreads, RunningHandlers
from leveret.bus.settings import TIME_S_MIN, BusSettings
from leveret.bus.spans import Spans, set_outcome
from leveret.bus.topology import Layout

E = TypeVar("E")

R = TypeVar("R", bound=HandlerReturn | Awaitable[HandlerReturn])

MessageHandler = Callable[[Delivery], HandlerReturn | Awaitable[HandlerReturn]]
M = TypeVar("M", bound=MessageHandler)
Next = Callable[[Delivery], Awaitable[HandlerResult]]
Middleware = Callable[[Delivery, Next], Awaitable[HandlerResult]]

LEASE_MARGIN_S: Final = 30.0  # of a claim, beyond the time limit of the handler
_log: Final = logging.getLogger(__name__)


class HandlerDecorator(Protocol[E]):
    """Registers a handler, with or without the delivery as argument, and returns it unchanged."""

    @overload
    def __call__(self, handler: Callable[[E, Delivery], R], /) -> Callable[[E, Delivery], R]: ...
    @overload
    def __call__(self, handler: Callable[[E], R], /) -> Callable[[E], R]: ...


@dataclass(frozen=True)
class Registration:
    """A handler, its event class and its retry policy."""

    function: Callable[..., Any]
    event: type | None  # None: the handler takes the delivery itself
    takes_delivery: bool
    policy: RetryPolicy
    timeout_s: float

    @property
    def name(self) -> str:
        """The name of the function, for logs and health."""
        function = self.function
        module = getattr(function, "__module__", "")
        return f"{module}.{getattr(function, '__qualname__', repr(function))}".lstrip(".")


class Dispatcher:
    """The handlers of a bus."""

    def __init__(
        self,
        layout: Layout,
        middleware: Sequence[Middleware] = (),
        store: IdempotencyStore | None = None,
        timeout_s: float = BusSettings.handler_timeout_s,
    ) -> None:
        self.running = RunningHandlers()
        self.spans: Spans | None = None  # of OpenTelemetry, if the program uses it
        self._owner = secrets.token_hex(16)  # of the claims of this process
        self._layout = layout
        self._timeout_s = timeout_s
        self._store = store
        self._handlers: dict[str, Registration] = {}
        self._fallback: Registration | None = None
        self._locks = KeyedLock()  # one for each message that is being handled
        self._chain: Next = self._handle_once
        for layer in reversed(middleware):
            self._chain = _wrap(layer, self._chain)

    @property
    def is_empty(self) -> bool:
        return not self._handlers and self._fallback is None

    @property
    def events(self) -> tuple[type, ...]:
        """The event classes that have a handler."""
        return tuple(each.event for each in self._handlers.values() if each.event is not None)

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """The delays of all retry policies."""
        return tuple(ms for each in self._registrations() for ms in each.policy.delays_ms)

    def add(
        self,
        event: type,
        function: Callable[..., Any],
        policy: RetryPolicy | None,
        timeout_s: float | None,
    ) -> None:
        """Register the handler of an event class."""
        codec.require_event(event)
        name = codec.name_of(event)
        if name in self._handlers:
            raise ValueError(f"{name} already has a handler")
        takes_two = _takes_two(function)
        self._handlers[name] = self._registration(function, event, takes_two, policy, timeout_s)

    def _registration(
        self,
        function: Callable[..., Any],
        event: type | None,
        takes_delivery: bool,
        policy: RetryPolicy | None,
        timeout_s: float | None,
    ) -> Registration:
        chosen = policy or RetryPolicy.of(self._layout)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        if not TIME_S_MIN <= limit_s < math.inf:
            raise ValueError(f"timeout_s must be {TIME_S_MIN:g} s or more, not {limit_s}")
        return Registration(function, event, takes_delivery, chosen, limit_s)

    def add_fallback(
        self, function: MessageHandler, policy: RetryPolicy | None, timeout_s: float | None
    ) -> None:
        """Register the handler of all other messages."""
        if self._fallback is not None:
            raise ValueError("there is already a handler for all other messages")
        _require_callable_with(function, 1)
        self._fallback = self._registration(function, None, False, policy, timeout_s)

    def label(self, delivery: Delivery) -> str:
        """Return the name of the event for metrics. Peers cannot add names to them."""
        return delivery.type if delivery.type in self._handlers else OTHER

    def policy(self, delivery: Delivery) -> RetryPolicy:
        """Return the retry policy of a delivery."""
        found = self._find_handler(delivery)
        return RetryPolicy.of(self._layout) if found is None else found.policy

    async def handle(self, delivery: Delivery, threads: HandlerThreads) -> HandlerResult:
        """Run middleware and handler, and return the result."""
        tracing.set_current(delivery.traceparent, delivery.headers.get(bus_headers.TRACESTATE))
        _threads.set(threads)
        if self.spans is None:
            return await self._run_chain(delivery)
        with self.spans.handling(delivery) as span:
            result = await self._run_chain(delivery)
            set_outcome(span, result)
            return result

    async def _run_chain(self, delivery: Delivery) -> HandlerResult:
        try:
            return await self._chain(delivery)
        except BaseException as fault:
            return self._result_of_error(delivery, fault)

    def _result_of_error(self, delivery: Delivery, fault: BaseException) -> HandlerResult:
        if not _is_handler_error(fault):
            raise fault
        if not isinstance(fault, PermanentError | DecodeError):
            name = delivery.type or delivery.message_id
            _log.warning("the handler of %s failed", name, exc_info=fault)
        return result_of_error(fault, self._layout)

    async def _handle_once(self, delivery: Delivery) -> HandlerResult:
        """Handle a message unless the store knows it. Duplicates wait for each other."""
        if self._store is None or not delivery.message_id:
            return await self._call_and_catch(delivery)
        key = claim_key(delivery.queue, delivery.message_id)
        async with self._locks.hold(key):
            lease_s = self._lease_s(delivery)
            state = await self._store.claim(key, self._owner, lease_s)
            if state is ClaimState.DONE:
                _log.info("message %s was handled before", delivery.message_id)
                return SUCCESS
            if state is ClaimState.HELD:
                # Another process handles it now. If that fails, this copy is the retry.
                return TOO_EARLY
            result = SUCCESS
            is_done = False
            try:
                result = await self._call_and_catch(delivery)
                is_done = result.is_success
            finally:
                settle = self._store.finish if is_done else self._store.release
                await settle(key, self._owner)
            return result

    def _lease_s(self, delivery: Delivery) -> float:
        """Return a lease that lasts longer than the handler may."""
        found = self._find_handler(delivery)
        return (self._timeout_s if found is None else found.timeout_s) + LEASE_MARGIN_S

    async def _call_and_catch(self, delivery: Delivery) -> HandlerResult:
        """Call the handler; middleware sees an exception as a HandlerResult too."""
        try:
            return await self._call(delivery)
        except BaseException as fault:
            return self._result_of_error(delivery, fault)

    async def _call(self, delivery: Delivery) -> HandlerResult:
        found = self._find_handler(delivery)
        if found is None:
            return self._unknown_event(delivery)
        arguments: tuple[Any, ...] = (delivery,)
        if found.event is not None:
            event: Any = codec.decode(delivery.body, found.event)
            arguments = (event, delivery) if found.takes_delivery else (event,)
        value = await self._run(found, arguments, delivery.message_id)
        return result_of_return(value, self._layout)

    async def _run(
        self, found: Registration, arguments: tuple[Any, ...], message_id: str
    ) -> HandlerReturn:
        """Call the handler. Raise HandlerTimeoutError if it does not end in time."""
        try:
            if _is_coroutine_function(found.function):
                return await self._await_handler(found, found.function(*arguments), message_id)
            return await self._run_in_thread(found, arguments, message_id)
        except _TimeLimitError:
            text = f"{found.name} did not finish within {found.timeout_s:g} s"
            raise HandlerTimeoutError(text) from None

    async def _await_handler(
        self, found: Registration, handling: Awaitable[HandlerReturn], message_id: str
    ) -> HandlerReturn:
        running = self.running.begin(found.name, message_id, found.timeout_s)
        try:
            async with _time_limit(found.timeout_s):
                return await handling
        finally:
            self.running.end(running)

    async def _run_in_thread(
        self, found: Registration, arguments: tuple[Any, ...], message_id: str
    ) -> HandlerReturn:
        """Call a plain function. If it hangs, its thread and its place among the running stay."""
        context = contextvars.copy_context()
        call = functools.partial(context.run, _call_plain, found.function, arguments)
        threads = _threads.get()
        await threads.acquire()
        running = self.running.begin(found.name, message_id, found.timeout_s)
        thread = threads.submit(call, functools.partial(self.running.end, running))
        async with _time_limit(found.timeout_s):
            value: Any = await thread
        if inspect.isawaitable(value):
            return await self._await_handler(found, value, message_id)
        answer: HandlerReturn = value
        return answer

    def _unknown_event(self, delivery: Delivery) -> HandlerResult:
        if self._layout.ignores_unknown:
            return SUCCESS
        raise PermanentError(f"no handler for {delivery.type or 'a message without a type'}")

    def _find_handler(self, delivery: Delivery) -> Registration | None:
        found = self._handlers.get(delivery.type)
        if found is None and self._fallback is not None:
            return self._fallback
        if found is None and not delivery.type and len(self._handlers) == 1:
            # A publisher that sets no type can only mean the one event with a handler.
            return next(iter(self._handlers.values()))
        return found

    def _registrations(self) -> list[Registration]:
        fallback = [] if self._fallback is None else [self._fallback]
        return [*self._handlers.values(), *fallback]


# The threads of the bus whose delivery is handled in this context.
_threads: Final[contextvars.ContextVar[HandlerThreads]] = contextvars.ContextVar(
    "leveret_bus_threads"
)


def _wrap(layer: Middleware, inner: Next) -> Next:
    async def call(delivery: Delivery) -> HandlerResult:
        result: object = await layer(delivery, inner)
        if not isinstance(result, HandlerResult):
            raise TypeError(f"{layer!r} returned {result!r} instead of a HandlerResult")
        return result

    return call


def _is_handler_error(fault: BaseException) -> bool:
    """Return True for a failure of the handler, False if the bus itself cancelled it.

    SystemExit counts as a failure: otherwise one message could end every process that gets it.
    """
    if isinstance(fault, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return isinstance(fault, Exception | SystemExit)


class _TimeLimitError(Exception):
    """The time limit of a handler is over. A TimeoutError may be the handler's own."""


@contextlib.asynccontextmanager
async def _time_limit(timeout_s: float) -> AsyncIterator[None]:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise _TimeLimitError from None
        raise


def _call_plain(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except StopIteration as fault:
        # A future cannot carry a StopIteration: the waiting task would wait for ever.
        raise RuntimeError("the handler raised StopIteration") from fault


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return True if a handler takes the event and the delivery."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    wanted = [each for each in found if each.kind in kinds and each.default is each.empty]
    has_rest = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in found)
    takes_two = has_rest or len(wanted) >= 2
    _require_callable_with(function, 2 if takes_two else 1)
    return takes_two


def _require_callable_with(function: Callable[..., Any], count: int) -> None:
    """Raise TypeError at registration instead of for every message."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as fault:
        text = "the event, or the event and the delivery, or for on_message the delivery"
        raise TypeError(f"{function!r} cannot be called with {text}: {fault}") from None
