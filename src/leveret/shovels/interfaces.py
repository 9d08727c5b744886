"""The interfaces between a shovel and its two ends, the source and the target.

The shovel calls the methods of an end. The end reports to a `ShovelListener`, which is the shovel;
it never waits for the other end. `open` returns when the end works. If it fails later, it calls
`ShovelListener.on_lost`.
"""

from collections.abc import Sequence

from leveret.amqp_client.client import Delivery
from leveret.engine.turns.session import Session


class ShovelListener:
    """Receives the reports of both ends. The shovel itself implements it."""

    def on_delivery(self, delivery: Delivery) -> None:
        """Handle a message that the source has delivered."""
        raise NotImplementedError

    def on_accepted(self, tag: int) -> None:
        """Note that the target has accepted the message of this tag."""
        raise NotImplementedError

    def on_refused(self, tag: int, *, retry: bool) -> None:
        """Note that the target refuses the message of this tag: for now (`retry`), or for good."""
        raise NotImplementedError

    def on_lost(self, fault: Exception) -> None:
        """Note that an end has failed."""
        raise NotImplementedError


class ShovelSource:
    """The end that messages come from."""

    length = 0  # messages in the queue when it was opened
    session: Session | None = None  # the engine's session, if the source is this node

    async def open(self, listener: ShovelListener) -> None:
        raise NotImplementedError

    def settle(
        self, acked: Sequence[int], requeued: Sequence[int], rejected: Sequence[int]
    ) -> None:
        """Settle the deliveries with these tags: ack, requeue, or reject for good."""
        raise NotImplementedError

    def request_more(self) -> None:
        """Deliver further messages: every message so far was passed on."""
        raise NotImplementedError

    def recheck(self) -> None:
        """Raise AccessRefusedError if the owner may no longer use this end."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class ShovelTarget:
    """The end that messages go to."""

    async def open(self, listener: ShovelListener) -> None:
        raise NotImplementedError

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        """Pass messages on, in order. Wait while the target accepts none."""
        raise NotImplementedError

    def recheck(self) -> None:
        """Raise AccessRefusedError if the owner may no longer use this end."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
