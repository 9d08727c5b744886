"""What a vhost has: exchanges, queues and bindings by name, and what operators said of it.

Here names are looked up; `Vhost` has the commands that define something. `queue_making` makes and
ends queues, `bindings` keeps what leads from exchanges to targets.

Invariant: any change that could alter a route raises `version` (`changed`): cached routes with
another version are found anew.
"""

from mypy_extensions import i64

from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.registry import make_exchange, predeclared
from leveret.engine.exchanges.router import Router
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.slots import Slots
from leveret.engine.queues.undelivered_deaths import Stuck
from leveret.engine.streams.segments import SegmentStore
from leveret.engine.target import Target
from leveret.engine.turns.events import EVENT_EXCHANGE
from leveret.engine.turns.retired_counts import Counts
from leveret.engine.turns.session import Consumer, Outlet, Turn
from leveret.engine.vhosts.governor import Governor
from leveret.engine.vhosts.register import Register
from leveret.errors import NotFoundError, ResourceLockedError


class VhostState:
    """The names of a vhost, and what they stand for."""

    def __init__(self, name: str, turn: Turn, slots: Slots, seed: i64) -> None:
        self.name = name
        self.turn = turn
        self.slots = slots
        self.seed = seed  # of the exchanges that choose at random
        self.version: i64 = 1  # raised by every change of exchanges, queues or bindings
        self.queues: dict[str, Queue] = {}
        self.targets: dict[str, Target] = {}  # the same queues, as the default exchange sees them
        self.exchanges: dict[str, Exchange] = {e.name: e for e in predeclared(self.targets)}
        self.router = Router(self.exchanges)
        self.sources: dict[Target, dict[str, Exchange]] = {}  # what has a binding to a target
        self.replies: dict[str, Consumer] = {}  # who waits for direct replies, by name
        self.stuck = Stuck(turn)
        self.gone = Counts()  # of queues, exchanges and sessions that are gone
        self.holding: dict[str, Queue] = {}  # what delayed exchanges hold back, by exchange
        self.register: Register | None = None  # the broker's
        self.segment_store: SegmentStore | None = None  # where streams are kept, if not in memory
        self.governor: Governor | None = None  # sees to it that policies are obeyed
        # What operators said of it
        self.tracing = False  # what passes is shown to whoever listens; see `set_tracing`
        self.routed: list[str] = []  # where the last message went, while it is traced
        self.event_exchange: Exchange | None = None  # of the vhost that has it
        self.default_kind = ""  # of queues whose declaration names none; empty: classic
        self.queues_max: i64 = -1  # none may be declared beyond; -1: no limit

    def exchange(self, name: str) -> Exchange:
        """The exchange of this name."""
        found = self.exchanges.get(name)
        if found is None:
            raise NotFoundError(f"no exchange '{name}' in vhost '{self.name}'")
        return found

    def queue(self, name: str, user: Outlet | None) -> Queue:
        """The queue of this name, if `user` may use it."""
        found = self.queues.get(name)
        if found is None:
            raise NotFoundError(f"no queue '{name}' in vhost '{self.name}'")
        if found.owner is not None and found.owner is not user:
            raise self.locked(name)
        return found

    def locked(self, name: str) -> ResourceLockedError:
        """The error for a queue that is somebody else's."""
        return ResourceLockedError(
            f"cannot obtain exclusive access to locked queue '{name}' in vhost '{self.name}'. "
            "It could be originally declared on another connection or the exclusive property "
            "value does not match that of the original declaration."
        )

    def log(self, definition: bytes) -> None:
        """Keep a definition for the next start."""
        journal = self.turn.journal
        if journal is not None:
            journal.write_definition(definition)

    def changed(self) -> None:
        """Routes are no longer what they were."""
        self.version += 1
        if self.event_exchange is not None:
            self.turn.listens = len(self.event_exchange.bindings) != 0
        self.stuck.retry()

    def add_event_exchange(self) -> None:
        """This is the vhost where events are told."""
        exchange = make_exchange("topic", EVENT_EXCHANGE, True, False, True, {}, None)
        self.exchanges[EVENT_EXCHANGE] = exchange
        self.event_exchange = exchange

    def set_tracing(self, is_on: bool) -> None:
        """Show what passes to whoever is bound to the trace exchange, or do not."""
        if is_on != self.tracing:
            self.tracing = is_on
            self.version += 1  # routes that are kept would pass by
            self.turn.traced += 1 if is_on else -1
