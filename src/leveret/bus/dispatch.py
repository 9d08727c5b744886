"""From a delivery to what became of it: middleware, the store of handled messages, the handler.

Handlers are coroutine functions, or plain functions, which run in a bounded pool of threads so that
none of them can stop heartbeats. What a handler raises is an outcome, never an error of the bus.
"""

import asyncio
import contextvars
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, overload

from leveret.bus import codec, tracing
from leveret.bus import headers as names
from leveret.bus.delivery import Delivery
from leveret.bus.errors import (
    DecodeError,
    PermanentError,
)
from leveret.bus.idempotency import IdempotencyStore
from leveret.bus.keyed_lock import KeyedLock
from leveret.bus.outcome import DONE, Handled, Result, failed, handled
from leveret.bus.policy import RetryPolicy
from leveret.bus.topology import Layout

E = TypeVar("E")

R = TypeVar("R", bound=Result | Awaitable[Result])

MessageHandler = Callable[[Delivery], Result | Awaitable[Result]]
M = TypeVar("M", bound=MessageHandler)
Next = Callable[[Delivery], Awaitable[Handled]]
Middleware = Callable[[Delivery, Next], Awaitable[Handled]]

_log: Final = logging.getLogger(__name__)


class Register(Protocol[E]):
    """Takes a handler of an event, with or without the delivery, and gives it back as it is."""

    @overload
    def __call__(self, handler: Callable[[E, Delivery], R], /) -> Callable[[E, Delivery], R]: ...
    @overload
    def __call__(self, handler: Callable[[E], R], /) -> Callable[[E], R]: ...


@dataclass(frozen=True)
class Registration:
    """A handler and what is known of it."""

    function: Callable[..., Any]
    event: type | None  # None: it takes deliveries as they are
    takes_delivery: bool
    policy: RetryPolicy


class Dispatcher:
    """The handlers of a bus."""

    def __init__(
        self,
        layout: Layout,
        middleware: Sequence[Middleware] = (),
        store: IdempotencyStore | None = None,
    ) -> None:
        self._layout = layout
        self._store = store
        self._handlers: dict[str, Registration] = {}
        self._fallback: Registration | None = None
        self._turns = KeyedLock()  # of messages that are handled, by key
        self._chain: Next = self._handle_once
        for layer in reversed(middleware):
            self._chain = _layered(layer, self._chain)

    @property
    def is_empty(self) -> bool:
        return not self._handlers and self._fallback is None

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """Of all policies."""
        return tuple(ms for each in self._registrations() for ms in each.policy.delays_ms)

    def add(self, event: type, function: Callable[..., Any], policy: RetryPolicy | None) -> None:
        """Register the handler of an event."""
        codec.require_event(event)
        name = codec.name_of(event)
        if name in self._handlers:
            raise ValueError(f"{name} has a handler already")
        chosen = policy or RetryPolicy.of(self._layout)
        self._handlers[name] = Registration(function, event, _takes_two(function), chosen)

    def add_fallback(self, function: MessageHandler, policy: RetryPolicy | None) -> None:
        """Register the handler of all other messages."""
        if self._fallback is not None:
            raise ValueError("there is a handler for all other messages already")
        _require_callable_with(function, 1)
        chosen = policy or RetryPolicy.of(self._layout)
        self._fallback = Registration(function, None, False, chosen)

    def policy(self, delivery: Delivery) -> RetryPolicy:
        """How a delivery is tried again."""
        found = self._find(delivery)
        return RetryPolicy.of(self._layout) if found is None else found.policy

    async def handle(self, delivery: Delivery, pool: Executor) -> Handled:
        """Let the handler do its work; what came of it."""
        tracing.enter(delivery.traceparent, delivery.headers.get(names.TRACESTATE))
        _pool.set(pool)
        try:
            return await self._chain(delivery)
        except BaseException as fault:
            return self._failed(delivery, fault)

    def _failed(self, delivery: Delivery, fault: BaseException) -> Handled:
        if not _is_of_handler(fault):
            raise fault
        if not isinstance(fault, PermanentError | DecodeError):
            name = delivery.type or delivery.message_id
            _log.warning("the handler of %s failed", name, exc_info=fault)
        return failed(fault, self._layout)

    async def _handle_once(self, delivery: Delivery) -> Handled:
        """Not at all where the store knows the message; duplicates that meet wait in turn."""
        if self._store is None or not delivery.message_id:
            return await self._outcome(delivery)
        key = f"{delivery.queue}/{delivery.message_id}"
        async with self._turns.of(key):
            if await self._store.seen(key):
                _log.info("message %s was handled before", delivery.message_id)
                return DONE
            outcome = await self._outcome(delivery)
            if outcome.is_done:
                await self._store.remember(key)
            return outcome

    async def _outcome(self, delivery: Delivery) -> Handled:
        """What middleware sees of a handler that raised is an outcome too."""
        try:
            return await self._call(delivery)
        except BaseException as fault:
            return self._failed(delivery, fault)

    async def _call(self, delivery: Delivery) -> Handled:
        found = self._find(delivery)
        if found is None:
            return self._unknown(delivery)
        arguments: tuple[Any, ...] = (delivery,)
        if found.event is not None:
            event: Any = codec.decode(delivery.body, found.event)
            arguments = (event, delivery) if found.takes_delivery else (event,)
        return handled(await _run(found.function, arguments), self._layout)

    def _unknown(self, delivery: Delivery) -> Handled:
        if self._layout.ignores_unknown:
            return DONE
        raise PermanentError(f"no handler for {delivery.type or 'a message without a type'}")

    def _find(self, delivery: Delivery) -> Registration | None:
        found = self._handlers.get(delivery.type)
        if found is None and self._fallback is not None:
            return self._fallback
        if found is None and not delivery.type and len(self._handlers) == 1:
            # A publisher that sets no type can mean only this one.
            return next(iter(self._handlers.values()))
        return found

    def _registrations(self) -> list[Registration]:
        fallback = [] if self._fallback is None else [self._fallback]
        return [*self._handlers.values(), *fallback]


# The pool of the bus whose delivery is handled in this context.
_pool: Final[contextvars.ContextVar[Executor]] = contextvars.ContextVar("leveret_bus_pool")


def _layered(layer: Middleware, inner: Next) -> Next:
    async def call(delivery: Delivery) -> Handled:
        outcome: object = await layer(delivery, inner)
        if not isinstance(outcome, Handled):
            raise TypeError(f"{layer!r} returned {outcome!r}, and not what its call gave")
        return outcome

    return call


def _is_of_handler(fault: BaseException) -> bool:
    """Whether it is a failure of the handler; a cancellation is, unless the bus asked for it.

    A handler that exits fails as well: the message would end one process after the other.
    """
    if isinstance(fault, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return isinstance(fault, Exception | SystemExit)


async def _run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Result:
    if _is_coroutine_function(function):
        result: Result = await function(*arguments)
        return result
    context = contextvars.copy_context()
    call = functools.partial(context.run, _called, function, arguments)
    found: Any = await asyncio.get_running_loop().run_in_executor(_pool.get(), call)
    answer: Result = await found if inspect.isawaitable(found) else found
    return answer


def _called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except StopIteration as fault:
        # A future cannot carry it: whoever waits would wait forever.
        raise RuntimeError("the handler raised StopIteration") from fault


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether a handler wants the delivery besides the event."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    wanted = [each for each in found if each.kind in kinds and each.default is each.empty]
    has_rest = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in found)
    takes_two = has_rest or len(wanted) >= 2
    _require_callable_with(function, 2 if takes_two else 1)
    return takes_two


def _require_callable_with(function: Callable[..., Any], count: int) -> None:
    """Raise TypeError now, and not with every message."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as fault:
        text = "the event, or the event and the delivery, or for on_message the delivery"
        raise TypeError(f"{function!r} cannot be called with {text}: {fault}") from None
