"""Sessions, their consumers, and the outlets by which deliveries leave.

A `Session` holds deliveries: their tags, the messages in flight, the prefetch limits. An AMQP
channel is a session. A `Consumer` is a subscription of a session to one queue. An `Outlet` (a
connection) carries several sessions and has a credit in bytes. When the credit is used up, its
consumers are parked until the runtime reports that the peer has read (`consuming.refill`). That
makes back-pressure an input of the engine.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.unacked import Unacked
from leveret.engine.message import Holder, Message
from leveret.engine.pulse import NEVER
from leveret.engine.target import Target
from leveret.engine.turns.turn import OutletBase, SessionBase, Turn
from leveret.wire.tables import Table

# What a delivery costs an outlet besides header and body: two frames and the deliver method.
DELIVERY_BYTES: Final = 64

# Why the broker ended a consumer.
QUEUE_GONE: Final = 1
TIMED_OUT: Final = 2
PERMISSION_LOST: Final = 3  # it may not read from its queue any more


class Outlet(OutletBase):
    """The way out for deliveries. The connection of a front is a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.credit: i64 = 0  # bytes that may still be delivered before the next refill
        self.starved: list[Consumer] = []  # parked for lack of credit
        self.exclusive_queues: dict[str, Target] = {}  # by name: they go when the outlet closes


class Session(SessionBase):
    """Holds deliveries. The channel of a front is a subclass and implements `send_…`."""

    def __init__(self, outlet: Outlet, turn: Turn) -> None:
        super().__init__()
        self.outlet = outlet
        self.number: i64 = 0  # among the sessions of its outlet
        self.turn = turn
        self.closed = False
        self.keeps = False  # a lease: what it got stays with it until it is settled, however long
        self.consumers: dict[str, Consumer] = {}
        self.getter = Holder()  # holds what was taken by `get`
        # Deliveries
        self.last_tag: i64 = 0  # the last delivery tag given
        self.unacked = Unacked()
        self.outbox: list[Message] = []  # delivered in this turn, in order of tags
        # Prefetch for consumers to come, and shared by all of the session; 0 = no limit
        self.prefetch: i64 = 0
        self.prefetch_bytes: i64 = 0
        self.shared_prefetch: i64 = 0
        self.shared_prefetch_bytes: i64 = 0
        self.consumed: i64 = 0  # in flight by consumers
        self.consumed_bytes: i64 = 0
        # Publishing
        self.confirming = False
        self.refused: list[int] = []  # sequence numbers since then that a queue refused
        # Statistics. Deliveries and gets are `last_tag`; those to live consumers are theirs.
        self.published: i64 = 0
        self.returned: i64 = 0  # mandatory, and nobody took it
        self.unroutable: i64 = 0  # dropped, because nobody took it
        self.retired_no_ack: i64 = 0  # delivered to consumers without acks that are gone
        self.got: i64 = 0
        self.got_no_ack: i64 = 0
        self.got_empty: i64 = 0
        self.acked: i64 = 0
        self.redelivered: i64 = 0

    def on_due(self, now_ms: i64) -> i64:
        """Something may be held for too long: the broker looks at it at the end of the turn."""
        self.turn.late.append(self)
        return NEVER

    def undecided(self) -> list[Message]:
        """What was settled by a transaction that is not committed yet: still in flight."""
        return []

    def send_ended(self, consumer: "Consumer") -> None:
        """Tell the peer that the broker ended a consumer."""
        raise NotImplementedError


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
        self.arguments: Table = {}
        self.priority: i64 = 0
        self.prefetch: i64 = session.prefetch
        self.prefetch_bytes: i64 = session.prefetch_bytes
        self.active = True  # False while it waits behind a single active consumer
        self.ended: i64 = 0  # QUEUE_GONE, TIMED_OUT, PERMISSION_LOST
        self.delivered: i64 = 0
        # How long it may hold a message: its own time, else the queue's, else the node's; 0 = any
        self.own_timeout_ms: i64 = -1
        self.node_timeout_ms: i64 = 0
        self.wire: bytes = b""  # the tag as the front writes it into each delivery

    def set_timeout(self, of_queue_ms: i64) -> None:
        """Take over the queue's time, unless there is one of its own; -1 means the node's."""
        if self.own_timeout_ms >= 0:
            self.timeout_ms = self.own_timeout_ms
        else:
            self.timeout_ms = of_queue_ms if of_queue_ms >= 0 else self.node_timeout_ms

    def has_room(self) -> bool:
        """Whether prefetch allows one more message. Without acks there is no limit."""
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
