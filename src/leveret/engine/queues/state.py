"""What a queue is made of: its rules, its messages, its consumers, and what it has counted.

The parts own their state (`Ready`, `Scheduled`, `Ledger`, `Subscribers` …); this module holds them
together and answers what can be said of them without moving a message. `Queue` moves them. What has
a subject of its own is a module of functions on this state: `queue_limits` (length), `queue_time`
(expiry, schedule, disuse), `queue_emptying` (purge and deletion), `remembering` (the chronicle).

Invariant: a part belongs to one queue, and `ready.pages` and `scheduled.pages` are the same.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.queue_arguments import QueueSettings
from leveret.engine.backlog.arrival_times import UNKNOWN, ArrivalTimes
from leveret.engine.backlog.ledger import Ledger
from leveret.engine.backlog.page_reader import PageReader, QueuePageReader
from leveret.engine.backlog.ready import LAZY_WINDOW, MESSAGE_BYTES, WINDOW, Ready
from leveret.engine.backlog.scheduled import Scheduled
from leveret.engine.history.life_events import Chronicle, copy_id
from leveret.engine.message import Message
from leveret.engine.queues.consumers import Subscribers
from leveret.engine.target import Target
from leveret.engine.timer_queue import Timed
from leveret.engine.turns.loss_counts import LossCounts
from leveret.engine.turns.session import Consumer, Leaving, Outlet, Turn
from leveret.errors import CorruptionError
from leveret.wire.tables import Table

# Messages moved by one wake-up before other work gets its turn again.
BATCH: Final = 5000

DAMAGE_TEXTS_MAX: Final = 8  # reasons kept for those who ask; all of them are logged


class QueueTimer(Timed):
    """Wakes its queue by the pulse."""

    def __init__(self, queue: "QueueState") -> None:
        super().__init__()
        self.queue = queue

    def on_due(self, now_ms: i64) -> i64:
        while True:
            try:
                return self.queue.on_due(now_ms)
            except CorruptionError as fault:
                self.queue.note_damage(fault)


class QueueState(Target):
    """Everything that a queue has. Nobody sees it before all of it is set: the timer comes last."""

    def __init__(
        self,
        vhost: str,
        name: str,
        slot: i64,
        settings: QueueSettings,
        durable: bool,
        auto_delete: bool,
        owner: Outlet | None,
        arguments: Table,
        turn: Turn,
    ) -> None:
        super().__init__(name)
        self.vhost = vhost
        self.slot = slot
        self.settings = settings
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner  # the connection that alone may use it, if it is exclusive
        self.arguments = arguments
        self.turn = turn
        self.is_quorum = settings.kind == "quorum"
        self.is_classic = settings.kind == "classic"
        self.holds_for: str | None = None  # the delayed exchange that it holds messages for
        self.deleted = False
        self.paused = False  # nothing is delivered; see `leveret.engine.vhosts.pausing`
        self.ledger = Ledger(turn.journal, durable, turn.unlogged)
        self.chronicle: Chronicle | None = None  # is told what happens, if the queue remembers
        # Rules, unpacked from the settings
        self.ttl_ms: i64 = settings.ttl_ms
        self.priority_max: i64 = settings.priority_max
        self.counts = settings.kind == "quorum" or settings.delivery_limit >= 0
        self.limited = settings.max_length >= 0 or settings.max_bytes >= 0
        # Messages
        self.next_seq: i64 = 0
        self.ready = Ready(
            prioritised=settings.priority_max > 0, returns_first=settings.kind == "quorum"
        )
        self.scheduled = Scheduled()
        self.arrival_times = ArrivalTimes()
        self.unacked: i64 = 0
        self.unacked_bytes: i64 = 0
        self.stuck: i64 = 0  # dead letters that nobody takes, kept and counted here
        self.damage: list[str] = []  # why messages were set aside as unreadable, if any were
        # Consumers
        self.subscribers = Subscribers(settings.single_active, settings.kind == "quorum")
        # Time
        self.used_ms: i64 = turn.now_ms  # last use that keeps an unused queue from expiring
        self.has_expiries = False  # a message with an expiry has been pushed
        self.dirty = False
        # Statistics
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0
        self.got_no_ack: i64 = 0
        self.got_empty: i64 = 0
        self.acked: i64 = 0
        self.redelivered: i64 = 0
        self.expired: i64 = 0
        self.dropped: i64 = 0
        self.refused: i64 = 0
        self.purged: i64 = 0
        self.moved: i64 = 0  # to other queues, by tasks
        self.fates: LossCounts | None = None  # of messages that were not acknowledged, if any left
        self.timer = QueueTimer(self)
        if turn.pages is not None:
            self.open_pages(turn.pages)
        if settings.expires_ms >= 0:
            turn.timers.arm(self.timer, self.used_ms + settings.expires_ms)

    def on_due(self, now_ms: i64) -> i64:
        """The timer of the queue is due; when it is next."""
        raise NotImplementedError

    # What can be said of it

    @property
    def damaged(self) -> int:
        """How many messages are set aside because they cannot be read."""
        return self.ready.damaged_count()

    @property
    def consumers(self) -> list[Consumer]:
        """Everybody subscribed, in order of arrival."""
        return self.subscribers.members

    def memory_bytes(self) -> i64:
        """What the messages take in memory, about; what is in the log alone takes little."""
        in_flight = self.unacked_bytes + self.unacked * MESSAGE_BYTES
        return in_flight + self.ready.memory_bytes() + self.scheduled.memory_bytes()

    def oldest_ready_ms(self) -> i64:
        """When the oldest ready message came or became due; UNKNOWN, also where there is none."""
        rank = self.ready.oldest_rank()
        return self.arrival_times.arrived_ms(rank) if rank >= 0 else UNKNOWN

    # What is noted for others

    def touch(self) -> None:
        """Look at the queue at the end of the turn."""
        if not self.dirty:
            self.dirty = True
            self.turn.dirty.append(self)

    def leave(self, message: Message, reason: str) -> None:
        """A message goes other than by an ack: what becomes of it is the broker's business."""
        self.turn.leaving.append(Leaving(message, self, reason))

    def own_fates(self) -> LossCounts:
        """The counts of this queue, which begin with the first that there is to count."""
        if self.fates is None:
            self.fates = LossCounts()
        return self.fates

    def count_dropped(self, reason: str) -> None:
        """A message is lost, for the queue and for the node."""
        self.own_fates().note_dropped(reason)
        self.turn.fates.note_dropped(reason)

    def note_damage(self, fault: CorruptionError) -> None:
        """A part of the queue cannot be read: it has been set aside, the rest goes on."""
        if len(self.damage) < DAMAGE_TEXTS_MAX:
            self.damage.append(str(fault))
        self.turn.faults.append(f"queue '{self.name}' in vhost '{self.vhost}': {fault}")
        self.ready.damaged.extend(self.scheduled.damaged)
        self.scheduled.damaged.clear()

    def note(self, event: str, message: Message, reason: str) -> None:
        """Tell the chronicle, if there is one, what happened to a message."""
        if self.chronicle is not None:
            number = copy_id(self.ledger.id, message.seq)
            self.chronicle.note(event, number, number, self.name, reason, "", message.address)

    # The log

    def open_pages(self, pages: PageReader) -> None:
        """From now on messages beyond the window stay in the log."""
        self.ready.pages = QueuePageReader(pages, self.slot, self.ledger.returned, self.counts)
        self.ready.pages.journal = self.ledger.journal
        self.scheduled.pages = self.ready.pages
        if self.settings.lazy:
            self.set_window(True)

    def set_window(self, lazy: bool) -> None:
        """How much of the queue is in memory; what is there stays there."""
        self.ready.window = LAZY_WINDOW if lazy else WINDOW
        self.scheduled.window = LAZY_WINDOW if lazy else WINDOW
