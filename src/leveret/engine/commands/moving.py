"""Move picked messages in one turn: out of their queue and into others, or just out.

A `Mover` has one source queue, one kind of work (`MOVE`, `COPY`, `DELETE`, `REDRIVE`) and one
destination. `carry_out` works on messages that were looked up in this turn. First it decides for
each message, changing nothing. Then it removes the messages that can go. Then it pushes them. A
turn is one block of the log, so after a crash each message is in exactly one place.

A message that cannot go stays where it is and is counted under the reason. A target is never filled
beyond its length limit, whatever its overflow behaviour: then `full` names it, and the remaining
messages are left for a later turn.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.engine.commands.content import Content
from leveret.engine.commands.picking import PickedMessage, remove
from leveret.engine.commands.publishing import queues_of, route_and_push
from leveret.engine.commands.redriving import prepare_redrive
from leveret.engine.history.life_events import MOVED, PURGED, copy_id
from leveret.engine.message import NO_EXPIRY, Address
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.target import Target
from leveret.engine.vhosts.vhost import Vhost

MOVE: Final = "move"
COPY: Final = "copy"
DELETE: Final = "delete"
REDRIVE: Final = "redrive"
KINDS: Final = (MOVE, COPY, DELETE, REDRIVE)

# Reasons why a message stays where it is.
EXPIRED: Final = "expired"
SCHEDULED: Final = "scheduled"  # an exchange would lose the time at which the message is due
NO_DEATH: Final = "no_death_record"
NO_QUEUE: Final = "no_such_queue"
NO_EXCHANGE: Final = "no_such_exchange"
EXCLUSIVE: Final = "exclusive_queue"
SAME_QUEUE: Final = "same_queue"  # the message is already in its target
UNROUTABLE: Final = "unroutable"
NOT_PERMITTED: Final = "not_permitted"


class Destination:
    """A queue, an exchange, or (if `queue` is empty) the queue in which a message died."""

    def __init__(self, vhost: Vhost, queue: str, exchange: str | None, key: str | None) -> None:
        self.vhost = vhost
        self.queue = queue
        self.exchange = exchange
        self.key = key  # None: keep the routing key of the message


class PlannedMove:
    """One message, and the queues that it goes to."""

    def __init__(self, picked: PickedMessage, address: Address, content: Content) -> None:
        self.picked = picked
        self.address = address
        self.content = content
        self.queues: list[Queue] = []
        self.via: str | None = None  # the exchange that routes it; None: a queue is the destination


class Mover:
    """Does one kind of work with messages of one queue."""

    def __init__(
        self,
        source: Queue,
        kind: str,
        destination: Destination,
        keep_attempts: bool,
        may_write: Callable[[str, str, str, str], bool],
    ) -> None:
        assert kind in KINDS
        self.kind = kind
        self._source = source
        self._destination = destination
        self._keep_attempts = keep_attempts
        self._may_write = may_write  # vhost, "queue" or "exchange", name, routing key
        self.done: i64 = 0  # messages that went, or would go in a dry run
        self.skipped: dict[str, int] = {}  # messages that stay, by reason
        self.targets: dict[str, int] = {}  # messages that went, or would go, by target queue
        self.full = ""  # name of a target without room; empty: all have room
        # Messages and bytes decided in this turn and not yet pushed, by slot
        self._coming: dict[int, int] = {}
        self._coming_bytes: dict[int, int] = {}

    def carry_out(self, picked: list[PickedMessage], *, dry_run: bool) -> i64:
        """Move the messages, from the first on. Return how many were moved or skipped.

        A dry run only counts where the messages would go.
        """
        self.full = ""
        self._coming.clear()
        self._coming_bytes.clear()
        decided: list[PlannedMove] = []
        count: i64 = 0
        for one in picked:
            move = self._plan(one)
            if move is not None:
                if not dry_run and not self._has_room(move):
                    break
                self._note_targets(move)
                decided.append(move)
            count += 1
        self.done += len(decided)
        if not dry_run:
            self._move(decided)
        return count

    def skip(self, reason: str, count: int) -> None:
        """Count messages that stay where they are, or that were not found."""
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def _note_targets(self, move: PlannedMove) -> None:
        for queue in move.queues:
            self.targets[queue.name] = self.targets.get(queue.name, 0) + 1

    def _plan(self, picked: PickedMessage) -> PlannedMove | None:
        """Return the planned move of a message. If it stays, count the reason and return None."""
        message = picked.message
        now_ms = self._source.turn.now_ms
        if self.kind == DELETE:
            return PlannedMove(picked, message.address, Content(message.header))
        if message.expires_ms != NO_EXPIRY and message.expires_ms <= now_ms:
            self.skip(EXPIRED, 1)  # its queue will remove it
            return None
        address = message.address
        header = message.header
        name = self._destination.queue
        if self.kind == REDRIVE:
            back = prepare_redrive(message, self._keep_attempts)
            address = back.address
            header = back.header
            name = name or back.queue
        move = PlannedMove(picked, address, Content(header))
        if self._destination.exchange is not None:
            reason = self._plan_to_exchange(move)
        else:
            reason = self._plan_to_queue(move, name)
        if not reason and self._source in move.queues:
            reason = SAME_QUEUE
        if reason:
            self.skip(reason, 1)
            return None
        return move

    def _plan_to_queue(self, move: PlannedMove, name: str) -> str:
        """Make a queue the target. Return the reason if it cannot be, else an empty text."""
        vhost = self._destination.vhost
        if not name:
            return NO_DEATH
        queue = vhost.queues.get(name)
        if queue is None:
            return NO_QUEUE
        if queue.owner is not None:
            return EXCLUSIVE
        if not self._may_write(vhost.name, "queue", name, ""):
            return NOT_PERMITTED
        move.queues.append(queue)
        return ""

    def _plan_to_exchange(self, move: PlannedMove) -> str:
        """Let an exchange route the message. Return the reason if it cannot, else an empty text."""
        destination = self._destination
        assert destination.exchange is not None
        exchange = destination.vhost.exchanges.get(destination.exchange)
        if exchange is None:
            return NO_EXCHANGE
        if move.picked.due_ms != 0:
            return SCHEDULED
        key = move.address.routing_key if destination.key is None else destination.key
        vhost = destination.vhost.name
        if exchange.internal or not self._may_write(vhost, "exchange", destination.exchange, key):
            return NOT_PERMITTED
        move.address = Address(destination.exchange, key)
        move.via = destination.exchange
        found: list[Target] = []
        if not destination.vhost.router.route(
            exchange, move.address.keys, move.content.headers, found
        ):
            return UNROUTABLE
        move.queues = queues_of(found)
        return ""

    def _has_room(self, move: PlannedMove) -> bool:
        """Return True if all targets have room for this message and those decided before."""
        size: int = len(move.picked.message.body)
        for queue in move.queues:
            more = self._coming.get(queue.slot, 0) + 1
            more_bytes = self._coming_bytes.get(queue.slot, 0) + size
            if not isinstance(queue, Stream) and not queue.has_room(more, more_bytes):
                self.full = queue.name
                return False
        for queue in move.queues:
            self._coming[queue.slot] = self._coming.get(queue.slot, 0) + 1
            self._coming_bytes[queue.slot] = self._coming_bytes.get(queue.slot, 0) + size
        return True

    def _move(self, decided: list[PlannedMove]) -> None:
        source = self._source
        if self.kind != COPY:
            remove(source, [move.picked for move in decided])
        for move in decided:
            message = move.picked.message
            if self.kind == DELETE:
                source.purged += 1
                source.note(PURGED, message, "task")
                source.ledger.forget(message)
                continue
            source.turn.cause_id = copy_id(source.ledger.id, message.seq)
            self._push(move)
            source.turn.cause_id = 0
            if self.kind != COPY:
                source.moved += 1
                source.note(MOVED, message, self.kind)
                source.ledger.hand_over(message)

    def _push(self, move: PlannedMove) -> None:
        vhost = self._destination.vhost
        content = move.content
        body = move.picked.message.body
        if move.via is not None:
            route_and_push(vhost, vhost.exchanges[move.via], move.address, content, body)
            return
        delay_ms: i64 = 0
        if move.picked.due_ms != 0:
            delay_ms = max(0, move.picked.due_ms - vhost.turn.now_ms)
        for queue in move.queues:
            queue.push(
                move.address,
                content.header,
                body,
                ttl_ms=content.ttl_ms,
                priority=content.priority,
                flags=content.flags,
                delay_ms=delay_ms,
            )
