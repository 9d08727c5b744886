"""The fields of a vhost: exchanges, queues and bindings by name, and the settings of operators.

Names are looked up here. `Vhost` has the commands that change definitions. `queue_creation` makes
and closes queues, `bindings` keeps the bindings.

Invariant: any change that could alter a route raises `version` (`changed`). A cached route with
another version is resolved again.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.deduplication.key_room import KeyRoom
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.registry import make_exchange, predeclared
from leveret.engine.exchanges.router import Router
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.slots import Slots
from leveret.engine.queues.stuck_dead_letters import StuckDeadLetters
from leveret.engine.streams.cursor_room import CursorRoom
from leveret.engine.streams.segments import SegmentStore
from leveret.engine.target import Target
from leveret.engine.timer_queue import Timed
from leveret.engine.turns.events import EVENT_EXCHANGE
from leveret.engine.turns.retired_counts import TrafficCounts
from leveret.engine.turns.session import Consumer, Outlet
from leveret.engine.turns.turn import Turn
from leveret.engine.vhosts.register import Register
from leveret.errors import NotFoundError, PreconditionFailedError, ResourceLockedError

EXCHANGES_MAX: Final = 100_000  # of one vhost
BINDINGS_MAX: Final = 1_000_000  # of one vhost; each takes about 400 bytes of memory
DEFINITION_BYTES_MAX: Final = 64 * 1024 * 1024  # of one vhost: see `definition_sizes`


class PolicyEnforcerBase(Timed):
    """The part of `PolicyEnforcer` that a vhost calls for every object that is made in it."""

    def apply(self, target: Target) -> None:
        """Apply the policies that match a queue or exchange."""
        raise NotImplementedError


class VhostState:
    """Tables of the objects of a vhost by name."""

    def __init__(self, name: str, turn: Turn, slots: Slots, seed: i64) -> None:
        self.name = name
        self.turn = turn
        self.slots = slots
        self.seed = seed  # for exchanges that choose at random
        self.version: i64 = 1  # raised by every change of exchanges, queues or bindings
        self.queues: dict[str, Queue] = {}
        self.targets: dict[str, Target] = {}  # the same queues, as the default exchange sees them
        self.exchanges: dict[str, Exchange] = {e.name: e for e in predeclared(self.targets)}
        self.router = Router(self.exchanges)
        self.binding_count: i64 = 0  # of all exchanges
        self.definition_bytes: i64 = 0  # of all queues, exchanges and bindings
        self.sources: dict[Target, dict[str, Exchange]] = {}  # exchanges with a binding to a target
        self.replies: dict[str, Consumer] = {}  # consumers of direct replies, by reply name
        self.key_room = KeyRoom(name)
        self.cursor_room = CursorRoom(name)
        self.stuck = StuckDeadLetters(turn)
        self.retired_counts = TrafficCounts()  # of queues, exchanges and sessions that have ended
        self.holding: dict[str, Queue] = {}  # queues of delayed exchanges, by exchange
        self.register: Register | None = None  # the broker's
        self.segment_store: SegmentStore | None = None  # None: streams are in memory
        self.enforcer: PolicyEnforcerBase | None = None  # applies the policies
        # Settings of operators
        self.tracing = False  # the firehose is on; see `set_tracing`
        self.event_exchange: Exchange | None = None  # only in the vhost `/`
        self.default_kind = ""  # type of queues that are declared without one; empty: classic
        self.queues_max: i64 = -1  # limit on the number of queues; -1: no limit
        self.exchanges_max: i64 = EXCHANGES_MAX
        self.bindings_max: i64 = BINDINGS_MAX
        self.definition_bytes_max: i64 = DEFINITION_BYTES_MAX

    def exchange(self, name: str) -> Exchange:
        """Return the exchange of this name. Raise NotFoundError if there is none."""
        found = self.exchanges.get(name)
        if found is None:
            raise NotFoundError(f"no exchange '{name}' in vhost '{self.name}'")
        return found

    def queue(self, name: str, user: Outlet | None) -> Queue:
        """Return the queue of this name. Raise an error if it is missing or locked."""
        found = self.queues.get(name)
        if found is None:
            raise NotFoundError(f"no queue '{name}' in vhost '{self.name}'")
        if found.owner is not None and found.owner is not user:
            raise self.locked(name)
        return found

    def locked(self, name: str) -> ResourceLockedError:
        """Return the error for an exclusive queue of another connection."""
        return ResourceLockedError(
            f"cannot obtain exclusive access to locked queue '{name}' in vhost '{self.name}'. "
            "It could be originally declared on another connection or the exclusive property "
            "value does not match that of the original declaration."
        )

    def require_definition_room(self, wish: str) -> None:
        """Raise PreconditionFailedError if the vhost may have no further definition."""
        if self.definition_bytes >= self.definition_bytes_max and not self.turn.is_restoring:
            raise PreconditionFailedError(
                f"cannot {wish}: the definitions of all queues, exchanges and bindings in vhost "
                f"'{self.name}' have {self.definition_bytes} bytes; the limit is "
                f"{self.definition_bytes_max} (option `definitions_bytes_max`)"
            )

    def log(self, definition: bytes) -> None:
        """Write a definition to the log."""
        journal = self.turn.journal
        if journal is not None:
            journal.write_definition(definition)

    def changed(self) -> None:
        """Invalidate cached routes, and try stuck dead letters again."""
        self.version += 1
        if self.event_exchange is not None:
            self.turn.listens = len(self.event_exchange.bindings) != 0
        self.stuck.retry()

    def add_event_exchange(self) -> None:
        """Add the event exchange, which only the vhost `/` has."""
        exchange = make_exchange(
            "topic",
            EVENT_EXCHANGE,
            durable=True,
            auto_delete=False,
            internal=True,
            arguments={},
            alternate=None,
        )
        self.exchanges[EVENT_EXCHANGE] = exchange
        self.event_exchange = exchange

    def set_tracing(self, is_on: bool) -> None:
        """Switch the firehose of this vhost on or off."""
        if is_on != self.tracing:
            self.tracing = is_on
            self.version += 1  # cached routes do not pass the firehose
            self.turn.traced += 1 if is_on else -1
