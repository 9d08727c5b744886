"""Sessions, their consumers, and the turn that collects what must be done for them.

A `Session` is what holds deliveries (an AMQP channel, for one): tags, messages in flight, prefetch.
A `Consumer` is a subscription of a session to one queue. An `Outlet` (a connection) carries several
sessions and has a credit in bytes: when it is used up its consumers are parked until the runtime
says that the peer has read (`Broker.refill`). That makes back-pressure an input of the engine.

The `Turn` collects, as columns, what the commands of one turn of the event loop have caused: queues
to be looked at, messages that leave their queue, sessions that have deliveries or confirms. Nothing
here performs it: `Broker.end_turn` works off what stays inside, fronts do the rest.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.lazy_free import LazyFree
from leveret.engine.backlog.ledger import Ledger
from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.backlog.unacked import Unacked
from leveret.engine.history.tracing import TracedMessages
from leveret.engine.message import Address, Holder, Message
from leveret.engine.target import Target
from leveret.engine.timer_queue import NEVER, Timed, TimerQueue
from leveret.engine.turns.loss_counts import NodeLossCounts
from leveret.engine.turns.retired_counts import Churn
from leveret.engine.turns.size_counts import Sizes
from leveret.journal.journal import Journal
from leveret.wire.tables import Table

# What a delivery costs an outlet besides header and body: two frames and the deliver method.
DELIVERY_BYTES: Final = 64

# Why the broker ended a consumer.
QUEUE_GONE: Final = 1
TIMED_OUT: Final = 2
REFUSED: Final = 3  # it may not read from its queue any more


# Why messages leave.
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
DUE: Final = "due"  # held by a delayed exchange until now: to be routed


class Leaving:
    """A message that left its queue other than by an ack, and why."""

    def __init__(self, message: Message, queue: Target, reason: str) -> None:
        self.message = message
        self.queue = queue
        self.reason = reason


class Tracer:
    """Is shown what passes a vhost that is traced."""

    def on_publish(
        self, vhost: str, address: Address, header: bytes, body: bytes, queues: list[str]
    ) -> None:
        """A message was published, and routed to these queues."""
        raise NotImplementedError

    def on_deliveries(self, session: "Session", messages: list[Message]) -> None:
        """Messages, of any vhost, are about to be sent."""
        raise NotImplementedError


class Turn:
    """What one turn of the event loop has caused so far."""

    def __init__(self, timers: TimerQueue) -> None:
        self.timers = timers
        self.now_ms: i64 = 1
        self.journal: Journal | None = None  # where durable things are written, if anywhere
        self.pages: PageReader | None = None  # reads it back
        self.is_restoring = False  # definitions come from the log: nothing follows from them
        self.logged = False  # the last publish wrote to it
        self.publish_id: i64 = 0  # of the publish that is carried out, where it is remembered
        self.cause_id: i64 = 0  # of the copy whose dead-lettering is carried out
        self.pushed: Target | None = None  # the last queue that was found by routing anew
        self.unlogged: list[Ledger] = []  # accounts of queues that have something to write to it
        self.outlet: Outlet | None = None  # whose input it is, if it is that of a connection
        # For whoever watches
        self.node_name = ""
        self.tracer: Tracer | None = None
        self.traced: i64 = 0  # vhosts that are traced
        self.listens = False  # somebody wants events
        self.events: list[tuple[str, Table]] = []
        # Inside the engine
        self.dirty: list[Target] = []  # queues that may have something to deliver or to drop
        self.leaving: list[Leaving] = []  # to be dead-lettered, parked or dropped
        self.doomed: list[Target] = []  # queues to be deleted: unused, or without consumers
        self.roomy: list[Session] = []  # whose consumers share a prefetch that has room again
        self.late: list[Session] = []  # sessions that may hold a message for too long
        self.lazy_free = LazyFree(timers)
        self.faults: list[str] = []  # damage that was found, for the log file of the node
        # Statistics
        self.number: i64 = 0  # of this turn since the start
        self.fates = NodeLossCounts()
        self.sizes = Sizes()
        self.traced_messages: TracedMessages | None = None  # only where spans are exported
        self.churn = Churn()
        # For the fronts
        self.outboxes: list[Session] = []
        self.confirms: list[Session] = []
        self.unsynced: list[Session] = []  # those that wait for the log first
        self.ended: list[Consumer] = []  # consumers that the broker ended

    def note_confirm(self, session: "Session") -> None:
        """The session has published: confirm at the end of the turn."""
        if not session.in_confirms:
            session.in_confirms = True
            self.confirms.append(session)


class Outlet(Timed):
    """Where deliveries leave. A front subclasses it by its connection."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""  # for people
        self.user_name = ""  # the same
        self.credit: i64 = 0  # bytes that may still be delivered before the next refill
        self.starved: list[Consumer] = []  # parked for lack of credit
        self.exclusive_queues: dict[str, Target] = {}  # by name: they go when the outlet closes


class Session(Timed):
    """What holds deliveries. A front subclasses it by its channel and implements `send_…`."""

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
        self.publish_seq: i64 = 0  # the last sequence number given to a publish
        self.confirmed_seq: i64 = 0  # all up to here are confirmed or refused
        self.refused: list[int] = []  # sequence numbers since then that a queue refused
        self.in_confirms = False  # listed in the turn's column
        self.unsynced_seq: i64 = 0  # publishes up to this one wait for the log
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

    def send_deliveries(self) -> None:
        """Encode and empty the outbox."""
        raise NotImplementedError

    def send_confirms(self) -> None:
        """Tell the publisher what is safe, up to `publish_seq`."""
        raise NotImplementedError

    def on_synced(self, seq: i64) -> None:
        """What was published up to this sequence number is on disk."""
        raise NotImplementedError

    def on_unsafe(self, seq: i64) -> None:
        """What was published up to this sequence number cannot be written."""
        raise NotImplementedError

    def send_ended(self, consumer: "Consumer") -> None:
        """Tell the peer that the broker ended a consumer."""
        raise NotImplementedError


class Consumer(Holder):
    """A subscription of a session to a queue."""

    def __init__(
        self, session: Session, queue: i64, tag: str, no_ack: bool, exclusive: bool
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
        self.ended: i64 = 0  # QUEUE_GONE, TIMED_OUT, REFUSED
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
