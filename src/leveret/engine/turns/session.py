"""Sessions, their consumers, and the outlets by which deliveries leave.

A `Session` holds deliveries: their tags, the messages in flight, the prefetch limits. An AMQP
channel is a session. A `Consumer` is a subscription of a session to one queue. An `Outlet` (a
connection) carries several sessions and has a credit in bytes. When the credit is used up, its
consumers are suspended until the runtime reports that the peer has read (`consuming.refill`). That
makes back-pressure an input of the engine.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.packed import unpack
from leveret.engine.backlog.unacked import Unacked
from leveret.engine.message import Holder, Message
from leveret.engine.target import Target
from leveret.engine.timer_queue import NEVER
from leveret.engine.turns.turn import OutletBase, SessionBase, Turn
from leveret.wire.tables import Table

# Credit that a delivery costs besides header and body: two frames and the deliver method.
DELIVERY_BYTES: Final = 64

# Reasons why the broker ended a consumer.
QUEUE_GONE: Final = 1
TIMED_OUT: Final = 2
PERMISSION_LOST: Final = 3  # the user may not read from the queue any more


class Outlet(OutletBase):
    """The way out for deliveries. The connection of a front is a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.credit: i64 = 0  # bytes that may be delivered before the next refill
        self.starved: list[Consumer] = []  # consumers that are suspended for lack of credit
        self.exclusive_queues: dict[
            str, Target
        ] = {}  # by name; they are deleted when the outlet closes


class Session(SessionBase):
    """Holds deliveries. The channel of a front is a subclass and implements `send_…`."""

    def __init__(self, outlet: Outlet, turn: Turn) -> None:
        super().__init__()
        self.outlet = outlet
        self.number: i64 = 0  # of the session in its outlet
        self.turn = turn
        self.closed = False
        self.has_no_timeout = False  # a lease: its messages are never taken back for their age
        self.consumers: dict[str, Consumer] = {}
        self.getter = Holder()  # holds the messages that were taken by `get`
        # Deliveries
        self.last_tag: i64 = 0  # the last delivery tag given
        self.unacked = Unacked()
        self.unsent: list[Message] = []  # delivered in this turn, in order of tags
        # Prefetch of each later consumer, and prefetch that all consumers share; 0 = no limit
        self.prefetch: i64 = 0
        self.prefetch_bytes: i64 = 0
        self.shared_prefetch: i64 = 0
        self.shared_prefetch_bytes: i64 = 0
        self.consumed: i64 = 0  # messages that consumers hold
        self.consumed_bytes: i64 = 0
        # Publishing
        self.confirming = False
        self.refused: list[int] = []  # sequence numbers above `confirmed_seq` that a queue refused
        # Statistics. `last_tag` counts deliveries and gets; each consumer counts its own.
        self.published: i64 = 0
        self.returned: i64 = 0  # mandatory messages that no queue took
        self.unroutable: i64 = 0  # other messages that no queue took
        self.retired_no_ack: i64 = 0  # deliveries without acks to consumers that are gone
        self.got: i64 = 0
        self.got_no_ack: i64 = 0
        self.got_empty: i64 = 0
        self.acked: i64 = 0
        self.redelivered: i64 = 0

    def on_due(self, now_ms: i64) -> i64:
        """Let the broker look for overdue messages at the end of the turn."""
        self.turn.late.append(self)
        return NEVER

    def undecided(self) -> list[Message]:
        """Return messages that an uncommitted transaction has settled: they are in flight."""
        return []

    def send_confirms(self) -> None:
        self._confirm_through(self.publish_seq)

    def on_synced(self, seq: i64) -> None:
        self._confirm_through(seq)

    def on_unsafe(self, seq: i64) -> None:
        if not self.closed and seq > self.confirmed_seq:
            self.refused = [later for later in self.refused if later > seq]
            self._confirm(seq, is_taken=False)

    def _confirm_through(self, last: i64) -> None:
        """Confirm all publishes up to `last`: one ack, and a nack for each refused publish."""
        if self.closed:
            return
        refused = self.refused
        while refused and refused[0] <= last:
            seq: i64 = refused.pop(0)
            if seq - 1 > self.confirmed_seq:
                self._confirm(seq - 1, is_taken=True)
            self._confirm(seq, is_taken=False)
        if last > self.confirmed_seq:
            self._confirm(last, is_taken=True)

    def _confirm(self, seq: i64, *, is_taken: bool) -> None:
        first = self.confirmed_seq + 1
        self.confirmed_seq = seq
        self.send_confirm(first, seq, is_taken)

    def send_confirm(self, first: i64, last: i64, is_taken: bool) -> None:
        """Tell the peer that its publishes from `first` to `last` are taken, or are refused."""
        raise NotImplementedError

    def send_ended(self, consumer: "Consumer") -> None:
        """Tell the peer that the broker ended a consumer."""
        raise NotImplementedError


def note_send_fault(turn: Turn, session: SessionBase, what: str, fault: Exception) -> None:
    """Note a fault in sending to one peer, and let its session end, so that others are served."""
    name = session.outlet.name if isinstance(session, Session) else ""
    turn.note_fault(f"sending {what} to connection '{name}'", fault)
    try:
        session.on_send_fault()
    except Exception as second:
        turn.note_fault(f"closing connection '{name}'", second)


class Consumer(Holder):
    """A subscription of a session to a queue."""

    def __init__(
        self, session: Session, queue: i64, tag: str, *, no_ack: bool, exclusive: bool
    ) -> None:
        super().__init__()
        self.session = session
        self.queue = queue  # slot
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.packed_arguments: bytes = b""
        self.priority: i64 = 0
        self.prefetch: i64 = session.prefetch
        self.prefetch_bytes: i64 = session.prefetch_bytes
        self.active = True  # False while it waits behind a single active consumer
        self.ended: i64 = 0  # QUEUE_GONE, TIMED_OUT, PERMISSION_LOST
        self.delivered: i64 = 0
        # Time for which it may hold a message: its own, else the queue's, else the node's; 0 = any
        self.own_timeout_ms: i64 = -1
        self.node_timeout_ms: i64 = 0
        self.wire: bytes = b""  # the tag, encoded as the front writes it into each delivery

    @property
    def arguments(self) -> Table:
        """The arguments, decoded at each call."""
        return unpack(self.packed_arguments)

    def set_timeout(self, of_queue_ms: i64) -> None:
        """Use the consumer's own timeout, else the queue's; -1 means the node's."""
        if self.own_timeout_ms >= 0:
            self.timeout_ms = self.own_timeout_ms
        else:
            self.timeout_ms = of_queue_ms if of_queue_ms >= 0 else self.node_timeout_ms

    def has_room(self) -> bool:
        """Return True if prefetch allows one more message. Without acks there is no limit."""
        if self.no_ack:
            return True
        if self.prefetch != 0 and self.unacked >= self.prefetch:
            return False
        if self.prefetch_bytes != 0 and self.unacked_bytes >= self.prefetch_bytes:
            return False
        session = self.session
        if session.shared_prefetch != 0 and session.consumed >= session.shared_prefetch:
            return False
        return (
            session.shared_prefetch_bytes == 0
            or session.consumed_bytes < session.shared_prefetch_bytes
        )
