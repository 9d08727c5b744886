"""A session inside the node: it consumes and publishes as a channel does, without a peer.

It checks no permissions: the code that makes a session has checked them. Deliveries and confirms
are callbacks inside a turn. A callback must only note them; commands follow in a later turn.
"""

from collections.abc import Callable

from mypy_extensions import i64

from leveret.engine.commands.content import Content
from leveret.engine.commands.publishing import Route, publish
from leveret.engine.message import Message
from leveret.engine.turns.outcomes import IN_LOG, QUEUE_FULL, UNROUTED
from leveret.engine.turns.session import Consumer, Outlet, Session
from leveret.engine.turns.turn import Turn
from leveret.engine.vhosts.vhost import Vhost


class LocalSession(Session):
    """A session with callbacks instead of a peer."""

    def __init__(
        self,
        outlet: Outlet,
        turn: Turn,
        on_deliveries: Callable[[list[Message]], None],
        on_confirm: Callable[[int, bool], None],
        on_ended: Callable[[], None],
        on_fault: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(outlet, turn)
        self._on_deliveries = on_deliveries
        self._on_confirm = on_confirm  # for a publish and all earlier ones that are unconfirmed
        self._on_ended = on_ended
        self._on_fault = on_fault  # a callback has failed: close the session in a later turn

    def publish(self, vhost: Vhost, route: Route, header: bytes, body: bytes) -> int:
        """Publish, and return the sequence number of the confirm.

        A mandatory message that no queue takes is refused.
        """
        turn = self.turn
        result = publish(vhost, route, Content(header), body)
        self.publish_seq += 1
        if result & QUEUE_FULL or (result == UNROUTED and route.mandatory):
            self.refused.append(self.publish_seq)
        if result & IN_LOG:
            journal = turn.journal
            assert journal is not None
            journal.must_sync = True
            self.unsynced_seq = self.publish_seq
        turn.note_confirm(self)
        return self.publish_seq

    def send_deliveries(self) -> None:
        unsent = self.unsent
        self.unsent = []
        tracer = self.turn.tracer
        if self.turn.traced != 0 and tracer is not None:
            tracer.on_deliveries(self.outlet, self.number, unsent)
        self._on_deliveries(unsent)
        for message in unsent:
            holder = message.holder
            if isinstance(holder, Consumer) and holder.no_ack:
                message.holder = None

    def send_confirm(self, first: i64, last: i64, is_taken: bool) -> None:
        self._on_confirm(last, is_taken)

    def on_send_fault(self) -> None:
        if not self.closed and self._on_fault is not None:
            self._on_fault()

    def send_ended(self, consumer: Consumer) -> None:
        if not self.closed:
            self._on_ended()
