"""The bus of one service (API sketch; the parts behind it follow)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from leveret.bus.delivery import Delivery
from leveret.bus.health import Health
from leveret.bus.outcome import Handled, Result
from leveret.bus.policy import RetryPolicy
from leveret.bus.settings import BusSettings
from leveret.bus.topology import Layout
from leveret.clock import Clock

E = TypeVar("E")
Handler = (
    Callable[[E, Delivery], Result | Awaitable[Result]] | Callable[[E], Result | Awaitable[Result]]
)
MessageHandler = Callable[[Delivery], Result | Awaitable[Result]]
Next = Callable[[Delivery], Awaitable[Handled]]
Middleware = Callable[[Delivery, Next], Awaitable[Handled]]


class Bus:
    """Publishes and consumes for one service, on any AMQP broker."""

    def __init__(
        self,
        url: str,
        layout: Layout,
        *,
        settings: BusSettings | None = None,
        middleware: Sequence[Middleware] = (),
        clock: Clock | None = None,
        rng: Random | None = None,
        management_url: str | None = None,
    ) -> None:
        raise NotImplementedError

    def on(
        self, event: type[E], *, retry: RetryPolicy | None = None
    ) -> Callable[[Handler[E]], Handler[E]]:
        """Register the handler of an event type."""
        raise NotImplementedError

    def on_message(
        self, *, retry: RetryPolicy | None = None
    ) -> Callable[[MessageHandler], MessageHandler]:
        """Register the handler of every message that has no handler of its own, undecoded."""
        raise NotImplementedError

    async def start(self, timeout_ms: int = 30_000) -> None:
        """Connect, apply the topology, consume if there are handlers."""
        raise NotImplementedError

    async def stop(self, deadline_ms: int | None = None) -> None:
        """Finish what is being handled, or give it back when the deadline has passed."""
        raise NotImplementedError

    async def __aenter__(self) -> "Bus":
        raise NotImplementedError

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raise NotImplementedError

    async def publish(
        self,
        event: object,
        *,
        routing_key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        process_after_delay_ms: int | None = None,
        message_id: str | None = None,
        mandatory: bool | None = None,
        timeout_ms: int | None = None,
        traceparent: str | None = None,
    ) -> str:
        """Publish an event, wait for the confirm, and return the message's id."""
        raise NotImplementedError

    async def send(self, event: object, **options: Any) -> str:
        """Publish without waiting for the confirm; waits only while too many are outstanding."""
        raise NotImplementedError

    async def wait_for_confirms(self, timeout_ms: int) -> bool:
        """Whether all that was sent is confirmed; False when time is over or one failed."""
        raise NotImplementedError

    async def health(self) -> Health:
        """Asks the broker, now."""
        raise NotImplementedError
