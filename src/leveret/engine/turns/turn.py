"""The turn: the effects of one input, collected as columns until they are performed.

Commands write here which queues to look at, which messages leave their queue, and which sessions
have deliveries or confirms to send. `Broker.end_turn` works off the columns that stay inside the
engine. `Broker.perform` hands the other columns to the fronts. Nothing in this module performs an
effect.

`SessionBase` and `OutletBase` are the parts of a session and of an outlet that the turn needs. They
are here because `session` imports this module.
"""

from traceback import format_tb
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.lazy_free import LazyFree
from leveret.engine.backlog.ledger import Ledger
from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.history.tracing import TracedMessages
from leveret.engine.message import Address, Holder, Message
from leveret.engine.target import Target
from leveret.engine.timer_queue import Timed, TimerQueue
from leveret.engine.turns.consumer_room import ConsumerRoom
from leveret.engine.turns.loss_counts import NodeLossCounts
from leveret.engine.turns.retired_counts import Churn
from leveret.engine.turns.size_counts import SizeCounts
from leveret.journal.journal import Journal
from leveret.wire.tables import Table

# Reasons why a message leaves its queue.
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
DUE: Final = "due"  # a delayed exchange held the message, and must route it now
FAULT: Final = "fault"  # a fault of the broker left it without a place: it is parked

# Limit for the work of one turn: 3 ms. The unit is the work of putting one copy of a message into a
# queue. Further input, and further messages that leave their queues, wait for the next turn, so
# that other clients are served.
WORK_MAX: Final = 5_000
DEATH_WORK: Final = 25  # of a message that dies: its header is written again
# While so much waits for the log, input and messages that leave their queues wait too. A block of
# the log has at most 1 GiB, and what a turn has begun is added to it.
LOG_BYTES_MAX: Final = 134_217_728
LOG_WAIT_MS: Final = 10  # until work that waits for the log is looked at again

# Texts of faults for the node's log.
FAULTS_KEPT_MAX: Final = 20  # texts kept in one turn; further faults are only counted
FAULT_LENGTH_MAX: Final = 500  # characters of one text
FAULT_FRAMES_MAX: Final = 8  # innermost calls in one text


class Leaving:
    """A message that left its queue other than by an ack, and the reason."""

    def __init__(self, message: Message, queue: Target, reason: str) -> None:
        self.message = message
        self.queue = queue
        self.reason = reason
        self.fault: Exception | None = None  # set if the reason is FAULT
        # With dead-lettering at least once: targets that took the dead letter while others refused
        # it. A retry must not copy the message to them again.
        self.accepted: list[Target] | None = None


class OutletBase(Timed):
    """The names of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""  # shown to people
        self.user_name = ""  # shown to people


class SessionBase(Timed):
    """The confirms of a session, and the calls by which a front sends them and the deliveries."""

    def __init__(self) -> None:
        super().__init__()
        self.publish_seq: i64 = 0  # the last sequence number given to a publish
        self.confirmed_seq: i64 = 0  # publishes up to this one are confirmed or refused
        self.unsynced_seq: i64 = 0  # publishes up to this one wait for the log
        self.is_relayed = False  # another node of the cluster relays its client
        self.in_confirms = False  # the session is in the turn's column `confirms`

    def send_deliveries(self) -> None:
        """Encode the unsent deliveries, and empty their list."""
        raise NotImplementedError

    def send_confirms(self) -> None:
        """Confirm or refuse every publish up to `publish_seq`."""
        raise NotImplementedError

    def on_synced(self, seq: i64) -> None:
        """Confirm the publishes up to this sequence number: they are on disk."""
        raise NotImplementedError

    def on_unsafe(self, seq: i64) -> None:
        """Refuse the publishes up to this sequence number: they cannot be written."""
        raise NotImplementedError

    def on_send_fault(self) -> None:
        """Handle that deliveries or confirms could not be sent, by a fault of the broker."""


class Tracer:
    """Interface to the firehose, which is called while at least one vhost is traced."""

    def on_publish(
        self, vhost: str, address: Address, header: bytes, body: bytes, queues: list[str]
    ) -> None:
        """Handle a message that was published and routed to these queues."""
        raise NotImplementedError

    def on_deliveries(self, outlet: OutletBase, channel: i64, messages: list[Message]) -> None:
        """Handle messages, of any vhost, that are about to be sent."""
        raise NotImplementedError


class Turn:
    """The effects of one turn of the event loop so far."""

    def __init__(self, timers: TimerQueue) -> None:
        self.timers = timers
        self.now_ms: i64 = 1
        self.journal: Journal | None = None  # takes everything durable; None: no log
        self.pages: PageReader | None = None  # reads messages back from the log
        self.is_restoring = False  # definitions come from the log: they have no effects
        self.publish_id: i64 = 0  # number of the publish being routed, for chronicles; 0: none
        self.cause_id: i64 = 0  # number of the copy being dead-lettered or moved; 0: none
        self.unlogged: list[Ledger] = []  # ledgers of queues that have records to write
        self.outlet: OutletBase | None = None  # the connection whose input started the turn
        # For observers
        self.node_name = ""
        self.tracer: Tracer | None = None
        self.traced: i64 = 0  # number of traced vhosts
        self.listens = False  # a queue is bound to the event exchange
        self.events: list[tuple[str, Table]] = []
        # Inside the engine
        self.dirty: list[Target] = []  # queues with something to deliver or to drop
        # Messages to be dead-lettered, parked or dropped. In the log they are in their queues.
        self.leaving: list[Leaving] = []
        self.doomed: list[Target] = []  # queues to be deleted: unused, or without consumers
        self.with_room: list[SessionBase] = []  # their shared prefetch has room again
        self.late: list[SessionBase] = []  # sessions that may hold a message beyond its timeout
        self.lazy_free = LazyFree(timers)
        self.faults: list[str] = []  # damage and faults that were found, for the node's log
        self.fault_count: i64 = 0  # faults that were confined, since the start
        self.work: i64 = 0  # done in this turn, in the unit of `WORK_MAX`
        self.log_bytes_max: i64 = LOG_BYTES_MAX
        self.consumer_room = ConsumerRoom()
        # Statistics
        self.number: i64 = 0  # turns since the start, this one included
        self.losses = NodeLossCounts()
        self.sizes = SizeCounts()
        self.traced_messages: TracedMessages | None = None  # set where spans are exported
        self.churn = Churn()
        # For the fronts
        self.deliveries: list[SessionBase] = []  # sessions with deliveries to send
        self.confirms: list[SessionBase] = []  # sessions with confirms to send
        self.unsynced: list[SessionBase] = []  # sessions that wait for the log first
        self.ended: list[Holder] = []  # consumers that the broker ended

    def is_log_full(self) -> bool:
        """Return True while so much waits for the log that work must wait for its next block."""
        journal = self.journal
        return journal is not None and journal.waiting_bytes() > self.log_bytes_max

    def note_fault(self, what: str, fault: Exception) -> None:
        """Record a fault of the broker that was confined to one message or object."""
        self.fault_count += 1
        if len(self.faults) < FAULTS_KEPT_MAX:
            text = f"{type(fault).__name__}: {fault}"[:FAULT_LENGTH_MAX]
            places = "".join(format_tb(fault.__traceback__, limit=-FAULT_FRAMES_MAX))
            self.faults.append(f"{what} failed: {text}\n{places}".rstrip())

    def note_unusable(self, what: str, why: str) -> None:
        """Record a setting that is left out because it cannot be used, for the node's log."""
        if len(self.faults) < FAULTS_KEPT_MAX:
            self.faults.append(f"{what}: {why}"[:FAULT_LENGTH_MAX])

    def note_confirm(self, session: SessionBase) -> None:
        """Confirm the publishes of a session at the end of the turn."""
        if not session.in_confirms:
            session.in_confirms = True
            self.confirms.append(session)
