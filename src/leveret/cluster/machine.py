"""The replicated queue: a deterministic state machine driven by the entries of a log.

Every node applies the same commands in the same order and reaches the same state. The time comes
with the command, as the leader stamped it. Messages to others are returned as effects. Only the
leader performs them, and only those of entries of its own term: earlier effects may have been
performed, and answered, long ago. A change of leader may lose or repeat effects. So a new leader
calls `resume` when its first entry is applied, publishers send unconfirmed messages again, and
receivers of effects ignore a leader of an older term than they have heard.

This machine is separate from the engine's `Queue`, which delivers into sessions of its node, keeps
bodies and windows in memory, and writes its own log. The replicated log replaces all of these. The
rules that users see are the same: returned messages come first, a delivery limit, expiry at the
head of the queue. A full queue refuses publishes before they are proposed (see `is_full`), because
a refusal in the log could not be told from a duplicate when the message is sent again.

Invariant: every message is in exactly one of fresh, returned, held by one consumer, or dead.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.cluster.commands import (
    ATTACH,
    CONFIGURE,
    DETACH,
    DISCARD,
    DOWN,
    ENQUEUE,
    PURGE,
    RETURN,
    SETTLE,
    TIMEOUT,
    Command,
    decode_command,
)
from leveret.cluster.machine_state import (
    Consumer,
    Contents,
    Held,
    Queued,
    decode_contents,
    encode_contents,
)

# Kinds of effects
CONFIRM: Final = 1  # publisher, number: the message is safe, or was already
OUT_OF_SEQUENCE: Final = 2  # publisher, number: the one that is expected
DELIVER: Final = 3  # consumer, index, number: the tag of the delivery
SETTLED: Final = 4  # consumer, index, number: the tag; index 0: nothing was held by it any more
DEAD_LETTER: Final = 5  # index, number: the reason; settle it as consumer 0 when it has arrived
WAKE: Final = 6  # number: propose TIMEOUT at this time
ENDED: Final = 7  # consumer: it is gone

# Why messages leave
REJECTED: Final = 1
EXPIRED: Final = 2
MAXLEN: Final = 3
DELIVERY_LIMIT: Final = 4

NO_PUBLISHER: Final = 0
DEAD_LETTERS: Final = 0  # the consumer whose verdicts are about dead letters


class Effect:
    """Something that the leader has to do."""

    def __init__(self, kind: i64, target: i64, index: i64, number: i64) -> None:
        self.kind: i64 = kind
        self.target: i64 = target
        self.index: i64 = index
        self.number: i64 = number


class Machine:
    """One replicated queue."""

    def __init__(self) -> None:
        self.contents = Contents()
        self._effects: list[Effect] = []

    # Snapshots

    def snapshot(self) -> bytes:
        return encode_contents(self.contents)

    def restore(self, state: bytes) -> None:
        self.contents = decode_contents(state)

    def live_indexes(self) -> list[int]:
        return self.contents.live_indexes()

    def ready_count(self) -> i64:
        return len(self.contents.fresh) + len(self.contents.returned)

    def is_full(self) -> bool:
        """Whether a queue that refuses when it is full should refuse to propose now."""
        limit = self.contents.settings.max_length
        return limit > 0 and self.ready_count() >= limit

    # Commands

    def apply(self, index: i64, data: bytes) -> list[Effect]:
        """Apply the command of one entry; what the leader has to do."""
        command = decode_command(data)
        self._effects = []
        contents = self.contents
        contents.now_ms = max(contents.now_ms, command.time_ms)
        kind = command.kind
        if kind == ENQUEUE:
            self._enqueue(index, command)
        elif kind == SETTLE or kind == RETURN or kind == DISCARD:
            self._on_verdict(command)
        elif kind == ATTACH:
            self._attach(command)
        elif kind == DETACH:
            self._detach(command.actor)
        elif kind == TIMEOUT:
            self._end_holds()
        elif kind == PURGE:
            self._purge()
        elif kind == CONFIGURE:
            assert command.settings is not None
            contents.settings = command.settings
        else:
            assert kind == DOWN
            self._down(command.actor)
        self._drop_expired()
        self._drop_overflow()
        self._pump()
        if kind == TIMEOUT or kind == CONFIGURE:
            self._wake()
        return self._effects

    def _effect(self, kind: i64, target: i64, index: i64, number: i64) -> None:
        self._effects.append(Effect(kind, target, index, number))

    def _enqueue(self, index: i64, command: Command) -> None:
        contents = self.contents
        publisher = command.actor
        if publisher != NO_PUBLISHER:
            last = contents.publishers.get(publisher, 0)
            if command.seq <= last:
                self._effect(CONFIRM, publisher, 0, command.seq)
                return
            if command.seq > last + 1:
                self._effect(OUT_OF_SEQUENCE, publisher, 0, last + 1)
                return
            contents.publishers[publisher] = int(command.seq)
        ttl_ms = command.ttl_ms
        if contents.settings.ttl_ms and (ttl_ms == 0 or contents.settings.ttl_ms < ttl_ms):
            ttl_ms = contents.settings.ttl_ms
        expires_ms = contents.now_ms + ttl_ms if ttl_ms else i64(0)
        contents.messages[index] = Queued(index, command.size_bytes, expires_ms, 0)
        contents.fresh.append(int(index))
        if publisher != NO_PUBLISHER:
            self._effect(CONFIRM, publisher, index, command.seq)
        if expires_ms:
            self._effect(WAKE, 0, 0, expires_ms)

    def _attach(self, command: Command) -> None:
        contents = self.contents
        consumer = contents.consumers.get(command.actor)
        if consumer is None:
            consumer = Consumer(command.actor, command.owner, command.prefetch)
            contents.consumers[command.actor] = consumer
            contents.rota.append(int(command.actor))
        else:
            consumer.is_attached = True
            consumer.prefetch = command.prefetch

    def _detach(self, number: i64) -> None:
        consumer = self.contents.consumers.get(number)
        if consumer is not None:
            consumer.is_attached = False
            self._maybe_end(consumer)

    def _maybe_end(self, consumer: Consumer) -> None:
        """Forget a consumer that takes nothing more and holds nothing."""
        if not consumer.is_attached and not consumer.held:
            del self.contents.consumers[consumer.number]
            self.contents.rota.remove(int(consumer.number))
            self._effect(ENDED, consumer.number, 0, 0)

    def _down(self, owner: i64) -> None:
        contents = self.contents
        contents.publishers.pop(owner, 0)
        for consumer in list(contents.consumers.values()):
            if consumer.owner == owner:
                consumer.is_attached = False
                for held in list(consumer.held.values()):
                    self._return(held.index)
                consumer.held.clear()
                self._maybe_end(consumer)

    # Verdicts

    def _on_verdict(self, command: Command) -> None:
        """Settle, return or discard deliveries; what is not held any more is only answered."""
        if command.actor == DEAD_LETTERS:
            self._forget_dead(command.numbers)
            return
        consumer = self.contents.consumers.get(command.actor)
        for tag in command.numbers:
            held = None if consumer is None else consumer.held.pop(tag, None)
            if held is None:
                self._effect(SETTLED, command.actor, 0, tag)
                continue
            self._effect(SETTLED, command.actor, held.index, tag)
            if command.kind == SETTLE:
                del self.contents.messages[held.index]
            elif command.kind == RETURN:
                self._return(held.index)
            else:
                self._leave(held.index, REJECTED)
        if consumer is not None:
            self._maybe_end(consumer)

    def _forget_dead(self, indexes: list[int]) -> None:
        """Dead letters that have arrived elsewhere."""
        for index in indexes:
            if self.contents.dead.pop(index, 0):
                del self.contents.messages[index]

    def _return(self, index: i64) -> None:
        """Back into the line, or out of the queue when that has happened too often."""
        message = self.contents.messages[index]
        message.returns += 1
        limit = self.contents.settings.delivery_limit
        if limit > 0 and message.returns > limit:
            self._leave(index, DELIVERY_LIMIT)
        else:
            heappush(self.contents.returned, int(index))

    def _leave(self, index: i64, reason: i64) -> None:
        """Out of the queue other than by a settle."""
        if self.contents.settings.dead_letters:
            self.contents.dead[index] = int(reason)
            self._effect(DEAD_LETTER, 0, index, reason)
        else:
            del self.contents.messages[index]

    # Time and limits

    def _end_holds(self) -> None:
        """Take back what was held too long."""
        limit = self.contents.settings.hold_ms_max
        if limit == 0:
            return
        for consumer in list(self.contents.consumers.values()):
            for tag, held in list(consumer.held.items()):
                if held.since_ms + limit <= self.contents.now_ms:
                    del consumer.held[tag]
                    self._return(held.index)
            self._maybe_end(consumer)

    def _purge(self) -> None:
        contents = self.contents
        for index in list(contents.fresh) + sorted(contents.returned):
            del contents.messages[index]
        contents.fresh.clear()
        contents.returned = []

    def _drop_expired(self) -> None:
        """RabbitMQ: messages expire at the head of the line."""
        contents = self.contents
        while self.ready_count():
            expires_ms = contents.messages[self._head()].expires_ms
            if expires_ms == 0 or expires_ms > contents.now_ms:
                return
            self._leave(self._pop(), EXPIRED)

    def _drop_overflow(self) -> None:
        limit = self.contents.settings.max_length
        while limit > 0 and self.ready_count() > limit:
            self._leave(self._pop(), MAXLEN)

    def _head(self) -> i64:
        contents = self.contents
        return contents.returned[0] if contents.returned else contents.fresh[0]

    def _pop(self) -> i64:
        contents = self.contents
        return heappop(contents.returned) if contents.returned else contents.fresh.popleft()

    def _wake(self) -> None:
        """Ask to be told of the next time that something is due."""
        contents = self.contents
        due_ms: i64 = 0
        if self.ready_count():
            due_ms = contents.messages[self._head()].expires_ms
        limit = contents.settings.hold_ms_max
        for consumer in contents.consumers.values():
            for held in consumer.held.values():
                if limit and (due_ms == 0 or held.since_ms + limit < due_ms):
                    due_ms = held.since_ms + limit
        if due_ms:
            self._effect(WAKE, 0, 0, due_ms)

    # Delivery

    def _pump(self) -> None:
        """Give ready messages to consumers with room, each in its turn; none that is expired."""
        contents = self.contents
        while self.ready_count():
            consumer = self._next_consumer()
            if consumer is None:
                return
            message = contents.messages[self._pop()]
            tag = consumer.next_tag
            consumer.next_tag += 1
            consumer.held[tag] = Held(message.index, contents.now_ms)
            self._effect(DELIVER, consumer.number, message.index, tag)
            if contents.settings.hold_ms_max and len(consumer.held) == 1:
                self._effect(WAKE, 0, 0, contents.now_ms + contents.settings.hold_ms_max)
            self._drop_expired()  # another one is at the head now

    def _next_consumer(self) -> Consumer | None:
        contents = self.contents
        for _ in range(len(contents.rota)):
            consumer = contents.consumers[contents.rota[0]]
            if contents.settings.single_active and consumer.is_attached:
                return consumer if consumer.has_room() else None
            contents.rota.rotate(-1)
            if consumer.has_room():
                return consumer
        return None

    def resume(self) -> list[Effect]:
        """What a new leader does first: effects that the one before may not have done."""
        self._effects = []
        for consumer in self.contents.consumers.values():
            for tag, held in consumer.held.items():
                self._effect(DELIVER, consumer.number, held.index, tag)
        for index, reason in self.contents.dead.items():
            self._effect(DEAD_LETTER, 0, index, reason)
        self._wake()
        return self._effects
