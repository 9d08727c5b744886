"""The fields of a queue: its settings, its messages, its consumers, and its counts.

Each part owns its state (`Ready`, `Scheduled`, `Ledger`, `Subscribers` …). This module holds the
parts together and answers questions that move no message. `Queue` moves the messages. Other
subjects are modules of functions on this state: `limits` (length), `lifetimes` (expiry, schedule,
unused queues), `emptying` (purge and deletion), `chronicle_notes` (the chronicle).

Invariant: a part belongs to one queue, and `ready.pages` and `scheduled.pages` are the same.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.packed import pack, unpack
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
from leveret.engine.turns.session import Consumer, Outlet
from leveret.engine.turns.turn import Leaving, Turn
from leveret.errors import CorruptionError
from leveret.wire.tables import Table

# Messages moved by one wake-up before other work gets its turn again.
BATCH: Final = 5000

DAMAGE_TEXTS_MAX: Final = 8  # descriptions kept for `explain`; the log file has all


class QueueTimer(Timed):
    """The timer of a queue."""

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
    """The fields of a queue. The timer is set last, because it makes the queue visible."""

    def __init__(
        self,
        vhost: str,
        name: str,
        slot: i64,
        settings: QueueSettings,
        *,
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
        self.owner = owner  # of an exclusive queue: the one connection that may use it
        self.packed_arguments: bytes = pack(arguments)
        self.turn = turn
        self.is_quorum = settings.kind == "quorum"
        self.is_classic = settings.kind == "classic"
        self.holds_for: str | None = None  # name of the delayed exchange whose messages it holds
        self.deleted = False
        self.paused = False  # no deliveries; see `leveret.engine.vhosts.pausing`
        self.ledger = Ledger(turn.journal, durable, turn.unlogged)
        self.chronicle: Chronicle | None = None  # set if the queue has `x-remember`
        # Unpacked from the settings
        self.ttl_ms: i64 = settings.ttl_ms
        self.priority_max: i64 = settings.priority_max
        self.counts = settings.kind == "quorum" or settings.delivery_limit >= 0
        self.limited = settings.max_length >= 0 or settings.max_bytes >= 0
        # Messages
        self.next_seq: i64 = 0
        self.ready = Ready(prioritised=settings.priority_max > 0, returns_first=self.is_quorum)
        self.scheduled = Scheduled()
        self.arrival_times = ArrivalTimes()
        self.unacked: i64 = 0
        self.unacked_bytes: i64 = 0  # of their bodies
        self.unacked_header_bytes: i64 = 0
        self.stuck: i64 = 0  # dead letters that no queue takes; the vhost keeps them
        self.damage: list[str] = []  # descriptions of the damage that made messages unreadable
        self.subscribers = Subscribers(settings.single_active, settings.kind == "quorum")
        # Time
        self.used_ms: i64 = turn.now_ms  # time of the last use, for the expiry of unused queues
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
        self.losses: LossCounts | None = None  # set with the first message that left without an ack
        self.timer = QueueTimer(self)
        if turn.pages is not None:
            self.open_pages(turn.pages)
        if settings.expires_ms >= 0:
            turn.timers.arm(self.timer, self.used_ms + settings.expires_ms)

    def on_due(self, now_ms: i64) -> i64:
        """Handle everything that is due. Return the next due time."""
        raise NotImplementedError

    @property
    def arguments(self) -> Table:
        """The arguments, decoded at each call."""
        return unpack(self.packed_arguments)

    @property
    def damaged(self) -> int:
        """Number of messages that are set aside because they cannot be read."""
        return self.ready.damaged_count()

    @property
    def consumers(self) -> list[Consumer]:
        """All consumers, in order of arrival."""
        return self.subscribers.members

    def memory_bytes(self) -> i64:
        """Return roughly the memory of the messages. Those in the log alone take little."""
        in_flight = self.unacked_bytes + self.unacked_header_bytes + self.unacked * MESSAGE_BYTES
        return in_flight + self.ready.memory_bytes() + self.scheduled.memory_bytes()

    def oldest_ready_ms(self) -> i64:
        """Return when the oldest ready message arrived or fell due. UNKNOWN if there is none."""
        rank = self.ready.oldest_rank()
        return self.arrival_times.arrived_ms(rank) if rank >= 0 else UNKNOWN

    def touch(self) -> None:
        """Have the queue pumped at the end of the turn."""
        if not self.dirty:
            self.dirty = True
            self.turn.dirty.append(self)

    def leave(self, message: Message, reason: str) -> None:
        """Let a message leave other than by an ack. The broker dead-letters or drops it."""
        self.turn.leaving.append(Leaving(message, self, reason))

    def own_losses(self) -> LossCounts:
        """Return the loss counts of this queue, made with the first loss."""
        if self.losses is None:
            self.losses = LossCounts()
        return self.losses

    def count_dropped(self, reason: str) -> None:
        """Count a lost message, for the queue and for the node."""
        self.own_losses().note_dropped(reason)
        self.turn.losses.note_dropped(reason)

    def note_damage(self, fault: CorruptionError) -> None:
        """Note that a part of the queue cannot be read. It is set aside, the rest goes on."""
        if len(self.damage) < DAMAGE_TEXTS_MAX:
            self.damage.append(str(fault))
        self.turn.faults.append(f"queue '{self.name}' in vhost '{self.vhost}': {fault}")
        self.ready.damaged.extend(self.scheduled.damaged)
        self.scheduled.damaged.clear()

    def note(self, event: str, message: Message, reason: str) -> None:
        """Note an event of a message in the chronicle, if there is one."""
        if self.chronicle is not None:
            number = copy_id(self.ledger.id, message.seq)
            self.chronicle.note(event, number, number, self.name, reason, "", message.address)

    def open_pages(self, pages: PageReader) -> None:
        """Leave messages beyond the window in the log from now on."""
        self.ready.pages = QueuePageReader(pages, self.slot, self.ledger.returned, self.counts)
        self.ready.pages.journal = self.ledger.journal
        self.scheduled.pages = self.ready.pages
        if self.settings.lazy:
            self.set_window(True)

    def set_window(self, lazy: bool) -> None:
        """Set how many messages are kept in memory. Messages that are there stay there."""
        self.ready.window = LAZY_WINDOW if lazy else WINDOW
        self.scheduled.window = LAZY_WINDOW if lazy else WINDOW
