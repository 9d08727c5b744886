"""Moving picked messages in one turn: out of their queue and into others, or just out.

A `Mover` belongs to one source queue and knows what is to be done (`MOVE`, `COPY`, `DELETE`,
`REDRIVE`) and where to. `carry_out` does it with messages that were looked up in this turn: first
it decides for each, changing nothing; then it removes those that can go; then it pushes them. A
turn is one block of the log, so after a crash each message is in exactly one place.

A message that cannot go stays where it is and is counted under the reason. A target is never
brought over its length limit, whatever its overflow behaviour: then `full` names it, and the rest
of the messages is left for a later turn.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.engine.commands.content import Content
from leveret.engine.commands.picking import Picked, remove
from leveret.engine.commands.publishing import queues_of, route_and_push
from leveret.engine.commands.redriving import redriven
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

# Why a message was left where it is.
EXPIRED: Final = "expired"
SCHEDULED: Final = "scheduled"  # only a queue keeps the time at which a message is due
NO_DEATH: Final = "no_death_record"
NO_QUEUE: Final = "no_such_queue"
NO_EXCHANGE: Final = "no_such_exchange"
EXCLUSIVE: Final = "exclusive_queue"
SAME_QUEUE: Final = "same_queue"  # it is where it would go
UNROUTABLE: Final = "unroutable"
NOT_PERMITTED: Final = "not_permitted"


class Goal:
    """Where messages go: to a queue, to an exchange, or (`queue` is empty) where they died."""

    def __init__(self, vhost: Vhost, queue: str, exchange: str | None, key: str | None) -> None:
        self.vhost = vhost
        self.queue = queue
        self.exchange = exchange
        self.key = key  # None: the message's own


class Aim:
    """One message, and where it goes."""

    def __init__(self, picked: Picked, address: Address, content: Content) -> None:
        self.picked = picked
        self.address = address
        self.content = content
        self.queues: list[Queue] = []
        self.via: str | None = None  # the exchange that routes it, if one does


class Mover:
    """Does one thing with messages of one queue."""

    def __init__(
        self,
        source: Queue,
        kind: str,
        goal: Goal,
        keep_attempts: bool,
        may_write: Callable[[str, str, str, str], bool],
    ) -> None:
        assert kind in KINDS
        self.kind = kind
        self._source = source
        self._goal = goal
        self._keep_attempts = keep_attempts
        self._may_write = may_write  # vhost, "queue" or "exchange", name, routing key
        self.done: i64 = 0  # messages that went, or would go
        self.skipped: dict[str, int] = {}  # messages that stay, by reason
        self.targets: dict[str, int] = {}  # messages that went, or would go, by queue
        self.full = ""  # the queue that has no room, if one has not
        # Decided in this turn and not yet pushed, by slot
        self._coming: dict[int, int] = {}
        self._coming_bytes: dict[int, int] = {}

    def carry_out(self, picked: list[Picked], is_trial: bool) -> i64:
        """Do it; with how many of the messages, from the first on, it is done or decided.

        `is_trial` only counts where messages would go.
        """
        self.full = ""
        self._coming.clear()
        self._coming_bytes.clear()
        decided: list[Aim] = []
        count: i64 = 0
        for one in picked:
            aim = self._aim(one)
            if aim is not None:
                if not is_trial and not self._has_room(aim):
                    break
                self._note_targets(aim)
                decided.append(aim)
            count += 1
        self.done += len(decided)
        if not is_trial:
            self._go(decided)
        return count

    def skip(self, reason: str, count: int) -> None:
        """Messages stay where they are, or are not there at all."""
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def _note_targets(self, aim: Aim) -> None:
        for queue in aim.queues:
            self.targets[queue.name] = self.targets.get(queue.name, 0) + 1

    # Deciding

    def _aim(self, picked: Picked) -> Aim | None:
        """Where a message goes; None where it stays, and that is counted."""
        message = picked.message
        now_ms = self._source.turn.now_ms
        if self.kind == DELETE:
            return Aim(picked, message.address, Content(message.header))
        if message.expires_ms != NO_EXPIRY and message.expires_ms <= now_ms:
            self.skip(EXPIRED, 1)  # its queue will see to that
            return None
        address = message.address
        header = message.header
        name = self._goal.queue
        if self.kind == REDRIVE:
            back = redriven(message, self._keep_attempts)
            address = back.address
            header = back.header
            name = name or back.queue
        aim = Aim(picked, address, Content(header))
        reason = self._aim_at_exchange(aim) if self._goal.exchange is not None else ""
        if self._goal.exchange is None:
            reason = self._aim_at_queue(aim, name)
        if not reason and self._source in aim.queues:
            reason = SAME_QUEUE
        if reason:
            self.skip(reason, 1)
            return None
        return aim

    def _aim_at_queue(self, aim: Aim, name: str) -> str:
        """Aim at a queue; why not, or nothing."""
        vhost = self._goal.vhost
        if not name:
            return NO_DEATH
        queue = vhost.queues.get(name)
        if queue is None:
            return NO_QUEUE
        if queue.owner is not None:
            return EXCLUSIVE
        if not self._may_write(vhost.name, "queue", name, ""):
            return NOT_PERMITTED
        aim.queues.append(queue)
        return ""

    def _aim_at_exchange(self, aim: Aim) -> str:
        goal = self._goal
        assert goal.exchange is not None
        exchange = goal.vhost.exchanges.get(goal.exchange)
        if exchange is None:
            return NO_EXCHANGE
        if aim.picked.due_ms != 0:
            return SCHEDULED
        key = aim.address.routing_key if goal.key is None else goal.key
        vhost = goal.vhost.name
        if exchange.internal or not self._may_write(vhost, "exchange", goal.exchange, key):
            return NOT_PERMITTED
        aim.address = Address(goal.exchange, key)
        aim.via = goal.exchange
        found: list[Target] = []
        if not goal.vhost.router.route(exchange, aim.address.keys, aim.content.headers, found):
            return UNROUTABLE
        aim.queues = queues_of(found)
        return ""

    def _has_room(self, aim: Aim) -> bool:
        """Whether all targets can take the message, and what was decided before it."""
        size: int = len(aim.picked.message.body)
        for queue in aim.queues:
            more = self._coming.get(queue.slot, 0) + 1
            more_bytes = self._coming_bytes.get(queue.slot, 0) + size
            if not isinstance(queue, Stream) and not queue.has_room(more, more_bytes):
                self.full = queue.name
                return False
        for queue in aim.queues:
            self._coming[queue.slot] = self._coming.get(queue.slot, 0) + 1
            self._coming_bytes[queue.slot] = self._coming_bytes.get(queue.slot, 0) + size
        return True

    # Doing

    def _go(self, decided: list[Aim]) -> None:
        source = self._source
        if self.kind != COPY:
            remove(source, [aim.picked for aim in decided])
        for aim in decided:
            message = aim.picked.message
            if self.kind == DELETE:
                source.purged += 1
                source.note(PURGED, message, "task")
                source.ledger.forget(message)
                continue
            source.turn.cause_id = copy_id(source.ledger.id, message.seq)
            self._push(aim)
            source.turn.cause_id = 0
            if self.kind != COPY:
                source.moved += 1
                source.note(MOVED, message, self.kind)
                source.ledger.hand_over(message)

    def _push(self, aim: Aim) -> None:
        vhost = self._goal.vhost
        content = aim.content
        body = aim.picked.message.body
        if aim.via is not None:
            route_and_push(vhost, vhost.exchanges[aim.via], aim.address, content, body)
            return
        delay_ms: i64 = 0
        if aim.picked.due_ms != 0:
            delay_ms = max(0, aim.picked.due_ms - vhost.turn.now_ms)
        for queue in aim.queues:
            queue.push(
                aim.address,
                content.header,
                body,
                ttl_ms=content.ttl_ms,
                priority=content.priority,
                flags=content.flags,
                delay_ms=delay_ms,
            )
