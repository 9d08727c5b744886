"""A reference broker in the simplest form: lists and loops, without regard to speed.

It models queues, channels and time. It computes the result of each command: the ready messages and
their order, the messages in flight, the scheduled ones, and the dead letters with their reasons. It
shares no code with `leveret`.

It does not decide which of several possible consumers gets a message. The test passes in the
deliveries of the real broker (`seen`); the model checks that they were allowed, and repeats them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

PARKED = "leveret.parked"
DELIVERY_LIMIT_OF_QUORUM = 20
PRIORITY_OF_QUORUM = 4
PRIORITY_MAX_OF_QUORUM = 31


@dataclass
class Rules:
    """The arguments of a queue; None = not set."""

    quorum: bool = False
    ttl_ms: int | None = None
    length_max: int | None = None
    bytes_max: int | None = None
    overflow: str = "drop-head"
    priority_max: int | None = None
    delivery_limit: int | None = None
    dead_letter: str | None = None  # a queue, through the default exchange
    single_active: bool = False
    delayed: bool = False
    retry_type: str | None = None
    retry_min_ms: int = 0
    retry_max_ms: int = 0

    def arguments(self) -> dict[str, object]:
        """Return the arguments of `queue.declare`."""
        given: dict[str, object | None] = {
            "x-queue-type": "quorum" if self.quorum else None,
            "x-message-ttl": self.ttl_ms,
            "x-max-length": self.length_max,
            "x-max-length-bytes": self.bytes_max,
            "x-overflow": self.overflow,
            "x-max-priority": self.priority_max,
            "x-delivery-limit": self.delivery_limit,
            "x-dead-letter-exchange": None if self.dead_letter is None else "",
            "x-dead-letter-routing-key": self.dead_letter,
            "x-single-active-consumer": self.single_active or None,
            "x-delayed": self.delayed or None,
            "x-delayed-retry-type": self.retry_type,
            "x-delayed-retry-min": self.retry_min_ms or None,
            "x-delayed-retry-max": self.retry_max_ms or None,
        }
        return {key: value for key, value in given.items() if value is not None}


@dataclass
class Death:
    queue: str
    reason: str
    count: int = 1


@dataclass
class Asked:
    """The properties of a publish that matter here; None and 0 = not set."""

    priority: int | None = None
    ttl_ms: int | None = None
    delay_ms: int = 0


@dataclass
class Message:
    """One message in one queue. Its body is unique."""

    body: bytes
    asked: Asked
    priority: int
    rank: int
    expires_ms: int | None
    deaths: list[Death]
    returns: int = 0
    failures: int = 0


@dataclass
class Held:
    """An unsettled delivery; `queue` is None if it was taken back, or its queue was deleted."""

    queue: Queue | None = field(repr=False)
    message: Message
    consumer: Consumer | None
    taken_ms: int


@dataclass(eq=False)
class Consumer:
    tag: str
    channel: Channel = field(repr=False)
    queue: Queue = field(repr=False)
    no_ack: bool
    prefetch: int  # 0 = no limit; the same for the next field
    prefetch_bytes: int
    priority: int
    timeout_ms: int | None

    def held(self) -> list[Message]:
        return [held.message for held in self.channel.unacked.values() if held.consumer is self]

    def has_room(self) -> bool:
        held = [len(message.body) for message in self.held()]
        return self.no_ack or (
            (self.prefetch == 0 or len(held) < self.prefetch)
            and (self.prefetch_bytes == 0 or sum(held) < self.prefetch_bytes)
        )


@dataclass(eq=False)
class Channel:
    name: str
    last_tag: int = 0
    unacked: dict[int, Held] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)


@dataclass
class Seen:
    """A delivery of the real broker."""

    channel: str
    consumer: str
    tag: int
    redelivered: bool
    body: bytes
    headers: dict[str, object]


@dataclass(eq=False)
class Queue:
    name: str
    rules: Rules
    ready: list[Message] = field(
        default_factory=list
    )  # in a quorum queue, without returned messages
    back: list[Message] = field(
        default_factory=list
    )  # returned messages of a quorum queue, served first
    scheduled: list[tuple[int, Message]] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    active: Consumer | None = None
    departed: Consumer | None = None  # was active, has ended, and may still hold messages
    next_rank: int = 0
    # Counts of messages that left
    pushed: int = 0
    acked: int = 0
    gone: dict[str, int] = field(default_factory=dict)  # by reason, with no_ack and purged

    def order(self) -> list[Message]:
        """Return the ready messages in the order of delivery."""
        return self.back + sorted(self.ready, key=lambda m: (-m.priority, m.rank))

    def take(self, message: Message) -> Message:
        (self.back if message in self.back else self.ready).remove(message)
        return message

    def heads(self) -> list[Message]:
        """Return the messages that can expire: the head; in a quorum queue, all heads of lines."""
        if not self.rules.quorum:
            return self.order()[:1]
        lines: dict[int, Message] = {}
        for message in self.order()[len(self.back) :]:
            lines.setdefault(message.priority, message)
        return self.back[:1] + list(lines.values())

    def is_limited(self) -> bool:
        return self.rules.length_max is not None or self.rules.bytes_max is not None

    def is_over(self, more: int = 0, more_bytes: int = 0) -> bool:
        rules = self.rules
        count = len(self.order()) + more
        size = sum(len(m.body) for m in self.order()) + more_bytes
        return (rules.length_max is not None and count > rules.length_max) or (
            rules.bytes_max is not None and size > rules.bytes_max
        )

    def may_take(self) -> list[Consumer]:
        """Return the consumers that may get the next message: the highest priority with room."""
        self.elect()
        served = [self.active] if self.active else []
        if not self.rules.single_active:
            served = list(self.consumers)
        able = [consumer for consumer in served if consumer.has_room()]
        best = max((consumer.priority for consumer in able), default=0)
        return [consumer for consumer in able if consumer.priority == best]

    def elect(self) -> None:
        """Choose the single active consumer, unless the last one still holds messages."""
        if not self.rules.single_active or self.active is not None:
            return
        if self.departed is None or not self.departed.held():
            self.departed = None
            best = max((consumer.priority for consumer in self.consumers), default=0)
            waiting = [consumer for consumer in self.consumers if consumer.priority == best]
            self.active = waiting[0] if waiting else None

    def count_gone(self, reason: str, count: int = 1) -> None:
        self.gone[reason] = self.gone.get(reason, 0) + count

    def in_flight(self, channels: list[Channel]) -> int:
        return sum(held.queue is self for c in channels for held in c.unacked.values())


class Model:
    """The reference broker: queues, channels and time."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.queues: dict[str, Queue] = {}
        self.channels: dict[str, Channel] = {}
        self.seen: list[Seen] = []
        self.leaving: list[tuple[Queue, Message, str]] = []
        self.ended: list[tuple[str, str]] = []  # channel and tag of consumers that were ended

    def declare(self, name: str, rules: Rules) -> None:
        self.queues[name] = Queue(name, rules)

    def delete(self, name: str) -> int:
        queue = self.queues.pop(name)
        for consumer in queue.consumers:
            del consumer.channel.consumers[consumer.tag]
            self.ended.append((consumer.channel.name, consumer.tag))
        for channel in self.channels.values():
            for held in channel.unacked.values():
                if held.queue is queue:
                    held.queue = None
        return len(queue.order())

    def purge(self, name: str) -> int:
        queue = self.queues[name]
        count = len(queue.order())
        queue.ready, queue.back = [], []
        queue.count_gone("purged", count)
        return count

    def publish(self, name: str, body: bytes, asked: Asked) -> bool:
        """Publish a message; return True if it is confirmed, as unroutable messages are too."""
        queue = self.queues.get(name)
        return queue is None or self.push(queue, body, asked, [])

    def push(self, queue: Queue, body: bytes, asked: Asked, deaths: list[Death]) -> bool:
        rules = queue.rules
        delay_ms = asked.delay_ms if rules.delayed else 0
        if delay_ms:
            asked = replace(asked, delay_ms=0)  # the next queue does not delay it again
        ttls = [ttl for ttl in (asked.ttl_ms, rules.ttl_ms) if ttl is not None]
        expires_ms = self.now_ms + delay_ms + min(ttls) if ttls else None
        priority = _clamp(rules, asked.priority)
        message = Message(body, asked, priority, queue.next_rank, expires_ms, deaths)
        queue.next_rank += 1
        if rules.overflow != "drop-head" and queue.is_over(1, len(body)):
            self.pump(queue)
            if queue.is_over(1, len(body)):
                if rules.overflow == "reject-publish-dlx":
                    self.leaving.append((queue, message, "maxlen"))
                return False
        queue.pushed += 1
        if delay_ms > 0:
            queue.scheduled.append((self.now_ms + delay_ms, message))
        else:
            queue.ready.append(message)
            self.drop_over_limit(queue)
        return True

    def drop_over_limit(self, queue: Queue) -> None:
        if queue.rules.overflow != "drop-head" or not queue.is_over():
            return
        self.pump(queue)
        self.drop_heads(queue)

    def drop_heads(self, queue: Queue) -> None:
        while queue.rules.overflow == "drop-head" and queue.order() and queue.is_over():
            self.leave(queue, queue.take(queue.order()[0]), "maxlen")

    def pump(self, queue: Queue) -> None:
        """Deliver and expire until nothing can be delivered and no head has expired."""
        while queue.order():
            able = queue.may_take()
            if not able:
                break
            message = queue.take(queue.order()[0])
            if message.expires_ms is not None and message.expires_ms < self.now_ms:
                self.leave(queue, message, "expired")
            else:
                self.deliver(queue, message, able)
        self.expire_heads(queue)

    def deliver(self, queue: Queue, message: Message, able: list[Consumer]) -> None:
        found = [seen for seen in self.seen if seen.body == message.body]
        assert found, f"{message} of {queue.name} was not delivered to any of {able}"
        seen = found[0]
        self.seen.remove(seen)
        names = {(consumer.channel.name, consumer.tag): consumer for consumer in able}
        consumer = names.get((seen.channel, seen.consumer))
        assert consumer is not None, f"{seen} was delivered, but only {list(names)} may have it"
        assert seen.redelivered == (message.returns > 0), (seen, message)
        check_headers(queue, message, seen.headers)
        if consumer.no_ack:
            queue.count_gone("no_ack")
        else:
            held = Held(queue, message, consumer, self.now_ms)
            consumer.channel.unacked[seen.tag] = held

    def get(self, name: str) -> Message | None:
        queue = self.queues[name]
        self.expire_heads(queue)
        if not queue.order():
            return None
        message = queue.take(queue.order()[0])
        self.expire_heads(queue)
        return message

    def got(self, name: str, channel: Channel, tag: int, message: Message, no_ack: bool) -> None:
        """Take a message by a get, under this tag."""
        if no_ack:
            self.queues[name].count_gone("no_ack")
        else:
            channel.unacked[tag] = Held(self.queues[name], message, None, self.now_ms)

    def expire_heads(self, queue: Queue) -> None:
        while True:
            dead = [
                message
                for message in queue.heads()
                if message.expires_ms is not None and message.expires_ms <= self.now_ms
            ]
            if not dead:
                return
            self.leave(queue, queue.take(dead[0]), "expired")

    def catch_up(self, channel: Channel, tag: int, multiple: bool) -> None:
        """Let queues deliver as much as they can before messages are returned to them."""
        for number, held in list(channel.unacked.items()):
            if number == tag or (multiple and (tag == 0 or number < tag)):
                if held.queue is not None and held.queue.is_limited():
                    self.pump(held.queue)

    def settled(self, channel: Channel, tag: int, multiple: bool) -> list[Held] | None:
        """Take deliveries from a channel, in order; None if the tag is unknown."""
        if tag == 0 and multiple:
            tags = list(channel.unacked)
        elif tag not in channel.unacked:
            return None
        else:
            tags = [t for t in channel.unacked if t == tag or (multiple and t < tag)]
        return [channel.unacked.pop(t) for t in sorted(tags)]

    def ack(self, taken: list[Held]) -> None:
        for held in taken:
            if held.queue is not None:
                held.queue.acked += 1

    def discard(self, taken: list[Held]) -> None:
        for held in taken:
            if held.queue is not None:
                self.leave(held.queue, held.message, "rejected")

    def give_back(self, taken: list[Held], failed: bool) -> None:
        for held in taken:
            if held.queue is not None:
                self.put_back(held.queue, held.message, failed)
        for held in taken:
            if held.queue is not None and held.queue.rules.quorum:
                self.drop_over_limit(held.queue)
            elif held.queue is not None:
                self.drop_heads(held.queue)

    def put_back(self, queue: Queue, message: Message, failed: bool) -> None:
        rules = queue.rules
        message.returns += 1
        if failed:
            message.failures += 1
            limit = _limit(rules)
            if limit is not None and message.failures > limit:
                self.leave(queue, message, "delivery_limit")
                return
        wants_delay = {"all": True, "failed": failed, "returned": not failed}
        if wants_delay.get(rules.retry_type or "", False):
            delay_ms = min(rules.retry_min_ms * max(1, message.failures), rules.retry_max_ms)
            queue.scheduled.append((self.now_ms + delay_ms, message))
        elif rules.quorum:
            queue.back.append(message)
        else:
            queue.ready.append(message)

    def leave(self, queue: Queue, message: Message, reason: str) -> None:
        queue.count_gone(reason)
        self.leaving.append((queue, message, reason))

    def dispose(self, queue: Queue, message: Message, reason: str) -> None:
        """Dead-letter, park or drop a message."""
        target = queue.rules.dead_letter
        deaths = _died(queue, message, reason)
        asked = replace(message.asked, ttl_ms=None)
        if target is None and reason == "delivery_limit":
            parked = self.queues.setdefault(PARKED, Queue(PARKED, Rules()))
            self.push(parked, message.body, asked, deaths)
        elif target in self.queues and (reason == "rejected" or not _is_cycle(deaths, target)):
            self.push(self.queues[target], message.body, asked, deaths)
        elif target in self.queues and queue.name != PARKED:
            parked = self.queues.setdefault(PARKED, Queue(PARKED, Rules()))
            self.push(parked, message.body, asked, deaths)

    def consume(self, consumer: Consumer) -> None:
        consumer.queue.elect()
        consumer.channel.consumers[consumer.tag] = consumer
        consumer.queue.consumers.append(consumer)
        consumer.queue.elect()

    def cancel(self, consumer: Consumer) -> None:
        queue = consumer.queue
        queue.elect()
        del consumer.channel.consumers[consumer.tag]
        queue.consumers.remove(consumer)
        if queue.active is consumer:
            queue.active = None
            queue.departed = consumer
            queue.elect()

    def close(self, channels: list[Channel]) -> None:
        """Close channels together: none of them gets messages that another one returns."""
        for channel in channels:
            for consumer in list(channel.consumers.values()):
                self.cancel(consumer)
        for channel in channels:
            taken = self.settled(channel, 0, True)
            assert taken is not None
            self.give_back(taken, failed=True)

    def advance(self, ms: int) -> None:
        """Advance the time to a moment at which something may be due."""
        self.now_ms += ms
        for queue in list(self.queues.values()):
            while due := [entry for entry in queue.scheduled if entry[0] <= self.now_ms]:
                entry = min(due, key=lambda entry: entry[0])
                queue.scheduled.remove(entry)
                self.release(queue, entry[1])
            self.expire_heads(queue)
        for channel in self.channels.values():
            self.take_back_late(channel)

    def release(self, queue: Queue, message: Message) -> None:
        if not message.returns:
            message.rank = queue.next_rank
            queue.next_rank += 1
        (queue.back if message.returns and queue.rules.quorum else queue.ready).append(message)
        self.drop_over_limit(queue)

    def take_back_late(self, channel: Channel) -> None:
        """Cancel consumers that hold a message too long; a late ack of it is not an error."""
        late: list[Held] = []
        for tag, held in channel.unacked.items():
            timeout_ms = held.consumer.timeout_ms if held.consumer else None
            if held.queue is not None and timeout_ms is not None:
                if held.taken_ms + timeout_ms <= self.now_ms:
                    late.append(held)
                    channel.unacked[tag] = Held(None, held.message, None, 0)
        for held in late:
            consumer = held.consumer
            assert consumer is not None
            if channel.consumers.get(consumer.tag) is consumer:
                self.cancel(consumer)
                self.ended.append((channel.name, consumer.tag))
        self.give_back(late, failed=True)

    def end_turn(self) -> None:
        """Process everything that the commands caused; all seen deliveries must be used up."""
        while True:
            for queue in list(self.queues.values()):
                self.pump(queue)
            if not self.leaving:
                break
            leaving, self.leaving = self.leaving, []
            for queue, message, reason in leaving:
                self.dispose(queue, message, reason)
        assert not self.seen, f"nobody should have got {self.seen}"


def _clamp(rules: Rules, priority: int | None) -> int:
    if rules.quorum:
        return min(PRIORITY_OF_QUORUM if priority is None else priority, PRIORITY_MAX_OF_QUORUM)
    return min(priority or 0, rules.priority_max or 0)


def _limit(rules: Rules) -> int | None:
    if rules.delivery_limit is None and rules.quorum:
        return DELIVERY_LIMIT_OF_QUORUM
    return rules.delivery_limit


def _died(queue: Queue, message: Message, reason: str) -> list[Death]:
    """Return the deaths of a message with one more, newest first."""
    others = [d for d in message.deaths if (d.queue, d.reason) != (queue.name, reason)]
    same = [d for d in message.deaths if (d.queue, d.reason) == (queue.name, reason)]
    return [Death(queue.name, reason, same[0].count + 1 if same else 1), *others]


def _is_cycle(deaths: list[Death], target: str) -> bool:
    """Return True if a message returned to a queue without a rejection: a dead-letter cycle."""
    for death in deaths:
        if death.reason == "rejected":
            return False
        if death.queue == target:
            return True
    return False


def check_headers(queue: Queue, message: Message, headers: dict[str, object]) -> None:
    """Return the headers of a delivery about deaths and returns."""
    deaths = headers.get("x-death", [])
    assert isinstance(deaths, list)
    told = [Death(death["queue"], death["reason"], death["count"]) for death in deaths]
    assert told == message.deaths
    counts = (headers.get("x-acquired-count", 0), headers.get("x-delivery-count", 0))
    if queue.rules.quorum or queue.rules.delivery_limit is not None:
        assert counts == (message.returns, message.failures)
    else:
        assert counts == (0, 0)
