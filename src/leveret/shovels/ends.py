"""The two ends of a shovel, as the carrying between them sees them.

An end tells its `Carrier` what happens, and is told what to do; it never waits for the other end.
`open` waits until the end works; from then on `Carrier.on_lost` says that it does not any more.
"""

from collections.abc import Sequence

from leveret.amqp_client.client import Delivery
from leveret.engine.turns.session import Session


class Carrier:
    """What the ends tell."""

    def on_delivery(self, delivery: Delivery) -> None:
        """The source has a message."""
        raise NotImplementedError

    def on_done(self, tag: int) -> None:
        """The target has the message of this tag, for good."""
        raise NotImplementedError

    def on_refused(self, tag: int, *, again: bool) -> None:
        """The target does not take it: not now (`again`), or never."""
        raise NotImplementedError

    def on_lost(self, fault: Exception) -> None:
        """An end does not work any more."""
        raise NotImplementedError


class Source:
    """Where messages come from."""

    length = 0  # messages that were in the queue when it was opened
    session: Session | None = None  # that holds what is in flight, if it is of this node

    async def open(self, carrier: Carrier) -> None:
        raise NotImplementedError

    def settle(self, done: Sequence[int], again: Sequence[int], never: Sequence[int]) -> None:
        """Acknowledge messages, give some back, and refuse others for good."""
        raise NotImplementedError

    def more(self) -> None:
        """Everything delivered so far has been passed on: further messages may come."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Target:
    """Where messages go."""

    async def open(self, carrier: Carrier) -> None:
        raise NotImplementedError

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        """Pass messages on, in order; waits while the target does not take any."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
