"""A scripted client, a broker with a log, and one planted fault: the n-th call of a function fails.

The script drives every kind of queue and exchange over AMQP: publish, get, consume, ack, nack,
reject, recover, expiry, delay, deletion, transactions. `Plan` raises `MemoryError` when a function
of the engine is entered for the n-th time, as a failed allocation would. The stage reacts to an
error as the sockets do: the connection whose input failed is closed, and nothing else.

`lost` returns confirmed messages that are in no place, in memory or after a restart. `misplaced`
returns messages that are in two places at once, and counts of a queue that are wrong.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from leveret.amqp.closing import fail_internally
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.protocol.stage import method, publish
from tests.simulation.storage_stage import Client, StorageStage

ENGINE = "/leveret/engine/"
DEAD: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
QUEUES: dict[str, dict[str, object]] = {
    "dead": {},
    "plain": DEAD,
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 2, **DEAD},
    "limit": {"x-delivery-limit": 1},
    "priority": {"x-max-priority": 5},
    "expiring": {"x-message-ttl": 1_000, **DEAD},
    "short": {"x-max-length": 2, **DEAD},
    "full": {"x-max-length": 1, "x-overflow": "reject-publish"},
    "lazy": {"x-queue-mode": "lazy"},
    "single": {"x-single-active-consumer": True},
    "unique": {"x-deduplication": {"header": "message_id"}},
    "stream": {"x-queue-type": "stream"},
    "remembered": {"x-remember": "life", **DEAD},
    "gone": {},
}
EXCHANGES: dict[str, dict[str, object]] = {
    "direct": {},
    "fanout": {},
    "topic": {},
    "headers": {},
    "x-consistent-hash": {},
    "x-modulus-hash": {},
    "x-random": {},
    "x-delayed-message": {"x-delayed-type": "direct"},
}


class PlantedError(MemoryError):
    """The planted fault."""


class Plan:
    """Counts the calls of functions of the engine, and lets one of them fail."""

    def __init__(self, code: CodeType | None = None, number: int = 0) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.has_failed = False
        self._code = code
        self._number = number

    def on_event(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or ENGINE not in code.co_filename:
            return
        self.calls[code] += 1
        if code is self._code and self.calls[code] == self._number:
            self.has_failed = True
            raise PlantedError(code.co_qualname)

    def run(self, action: Callable[[], object]) -> None:
        """Run a part of the broker under this plan."""
        if self.has_failed:
            action()
            return
        sys.settrace(self.on_event)
        try:
            action()
        finally:
            sys.settrace(None)


class Script:
    """A client that connects again when its connection is closed, and knows what is confirmed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stage = StorageStage(FakeDisk())
        self.confirmed: set[bytes] = set()
        self.settled: set[bytes] = set()  # or the connection failed while they were settled
        self._number = 0
        self._define()
        self._connect()

    def _define(self) -> None:
        client = Client(self.stage)
        for name, arguments in QUEUES.items():
            client.declare(name, **arguments)
        for kind, more in EXCHANGES.items():
            client.call(
                2, "exchange.declare", exchange=kind, type=kind, durable=True, arguments=more
            )
            for queue, key in (("plain", "1"), ("lazy", "2")):
                client.call(2, "queue.bind", queue=queue, exchange=kind, routing_key=key)
        self.stage.sync_all()
        client.peer.lose()

    def _connect(self) -> None:
        self.client = Client(self.stage)
        self._held: dict[int, bytes] = {}

    def _reconnect(self) -> None:
        if self.client.peer.hung_up() or not self.client.peer.connection.channels:
            self._connect()

    def feed(self, data: bytes) -> list[Method]:
        """Send bytes in a turn under the plan. Return the answers; none if the turn failed."""
        self._reconnect()
        stage = self.stage
        peer = self.client.peer
        stage.broker.begin_turn(stage.now_ms)
        try:
            self.plan.run(lambda: peer.connection.feed(data))
        except PlantedError:
            fail_internally(peer.connection)
        try:
            self.plan.run(stage.broker.end_turn)
        except PlantedError:
            peer.lose()
        stage.end_turn()
        stage.sync_all()
        if peer.hung_up() or not peer.connection.channels:
            return []
        self.client.read()
        answers = self.client.others
        self.client.others = []
        return answers

    def publish(self, key: str, exchange: str = "", **properties: object) -> bytes:
        self._number += 1
        body = b"%d" % self._number
        self._reconnect()
        before = self.client
        self.client.published += 1
        number = self.client.published
        wanted = {"delivery_mode": 2, **properties}
        self.feed(publish(1, key, body, wanted, exchange=exchange))
        is_confirmed = self.client is before and self.client.confirmed.get(number)
        if is_confirmed and key != "stream":
            self.confirmed.add(body)
        return body

    def get(self, queue: str) -> tuple[int, bytes] | None:
        answers = self.feed(method(3, "basic.get", queue=queue, no_ack=False))
        if not answers or answers[0].name != "basic.get-ok":
            return None
        return answers[0].tag, answers[0].body

    def settle(self, queue: str, name: str, **fields: object) -> None:
        """Take a message, and settle it."""
        found = self.get(queue)
        if found is None:
            return
        tag, body = found
        is_dropped = (
            fields.get("requeue") is False and "x-dead-letter-exchange" not in QUEUES[queue]
        )
        if name == "basic.ack" or is_dropped:
            self.settled.add(body)
        self.feed(method(3, name, delivery_tag=tag, **fields))

    def advance(self, ms: int) -> None:
        stage = self.stage
        stage.now_ms += ms
        for _ in range(3):
            try:
                self.plan.run(lambda: stage.broker.on_pulse(stage.now_ms))
            except PlantedError:
                stage.broker.begin_turn(stage.now_ms)
            try:
                self.plan.run(stage.broker.end_turn)
            except PlantedError:
                stage.broker.begin_turn(stage.now_ms)
            stage.end_turn()
            stage.sync_all()

    def play(self) -> None:
        """Do everything once."""
        for queue in QUEUES:
            for number in range(3):
                self.publish(queue, priority=number, message_id=f"{queue}{number}")
        for kind in EXCHANGES:
            self.publish("1", kind, headers={"x-delay": 500})
            self.publish("2", kind, headers={"CC": ["1", "other"]})
        for queue in QUEUES:
            self.settle(queue, "basic.ack", multiple=True)
            self.settle(queue, "basic.nack", requeue=True, multiple=True)
            self.settle(queue, "basic.reject", requeue=True)
            self.settle(queue, "basic.reject", requeue=True)
            self.settle(queue, "basic.reject", requeue=False)
        self.advance(600)
        self._consume("single")
        self._consume("quorum")
        self._commit()
        self.advance(2_000)
        self.settled.update(bodies_of(self.stage, "gone"))
        self.feed(method(2, "queue.delete", queue="gone"))
        self.settled.update(bodies_of(self.stage, "lazy"))
        self.feed(method(2, "queue.purge", queue="lazy"))
        self.client.peer.lose()
        self._connect()
        self.advance(60_000)

    def _consume(self, queue: str) -> None:
        self.feed(method(2, "basic.qos", prefetch_count=2))
        self.feed(method(2, "basic.consume", queue=queue, consumer_tag="t"))
        deliveries = self.client.deliveries
        self.client.deliveries = []
        if deliveries:
            self.settled.add(deliveries[0].body)
            self.feed(method(2, "basic.ack", delivery_tag=deliveries[0].tag))
        self.client.deliveries = []
        self.feed(method(2, "basic.recover", requeue=True))
        self.client.deliveries = []
        self.feed(method(2, "basic.cancel", consumer_tag="t"))
        self.feed(method(2, "channel.close", reply_code=200, reply_text=""))
        self.feed(method(2, "channel.open"))

    def _commit(self) -> None:
        self.feed(method(2, "tx.select"))
        self._number += 1
        body = b"%d" % self._number
        properties: dict[str, object] = {"delivery_mode": 2}
        self.feed(publish(2, "plain", body, properties))
        answers = self.feed(method(2, "tx.commit"))
        if answers and answers[0].name == "tx.commit-ok":
            self.confirmed.add(body)

    def lost(self) -> list[tuple[str, bytes]]:
        """Return confirmed messages that are nowhere, in memory or after a restart."""
        wanted = self.confirmed - self.settled
        in_memory = set(everything(self.stage))
        found = [("memory", body) for body in wanted - in_memory]
        self.stage = StorageStage(self.stage.killed(), now_ms=self.stage.now_ms)
        self.advance(1_000)
        names = sorted(queues_of(self.stage)) * 2  # a message that expires goes to another queue
        in_log = {body for name in names for body in taken(self.stage, name)}
        found.extend(("restart", body) for body in wanted - in_log)
        return sorted(found)


def misplaced(stage: StorageStage) -> list[str]:
    """Return messages that are in two places, and counts that differ from the places."""
    vhost = stage.broker.vhost("/")
    places: Counter[tuple[int, int]] = Counter()  # slot of the queue, and sequence number
    in_flight: Counter[int] = Counter()
    for connection in stage.peers:
        for channel in connection.channels.values():
            for message in channel.unacked.messages():
                places[message.queue, message.seq] += 1
                in_flight[message.queue] += 1
    for leaving in stage.broker.turn.leaving:
        places[leaving.message.queue, leaving.message.seq] += 1
    faults: list[str] = []
    for queue in [*vhost.queues.values(), *vhost.holding.values()]:
        if isinstance(queue, Stream):
            continue
        ready = queue.ready
        for message in [*ready.messages(), *queue.scheduled.messages(), *vhost.stuck.of(queue)]:
            places[message.queue, message.seq] += 1
        for run in ready.paged_runs():
            places.update((queue.slot, seq) for seq in run.seqs[run.at :])
        paged = sum(run.left() for run in ready.paged_runs())
        counts = [
            ("ready", ready.count, len(ready.messages()) + paged),
            ("ready bytes", ready.body_bytes, sum(len(m.body) for m in ready.messages())),
            ("unacked", queue.unacked, in_flight[queue.slot]),
        ]
        faults.extend(
            f"{queue.name}: {what} is {counted}, but there are {there}"
            for what, counted, there in counts
            if counted != there and not (what == "ready bytes" and paged)
        )
    names = {queue.slot: queue.name for queue in vhost.queues.values()}
    faults.extend(
        f"message {seq} of {names.get(slot, slot)} is in {times} places"
        for (slot, seq), times in places.items()
        if times > 1
    )
    return faults


def queues_of(stage: StorageStage) -> dict[str, Queue]:
    queues = stage.broker.vhost("/").queues
    return {name: queue for name, queue in queues.items() if not isinstance(queue, Stream)}


def taken(stage: StorageStage, name: str) -> list[bytes]:
    return [message.body for message in Client(stage).drain(name)]


def bodies_of(stage: StorageStage, name: str) -> list[bytes]:
    """Return the bodies in one queue, ready or scheduled."""
    queue = stage.broker.vhost("/").queues.get(name)
    if queue is None:
        return []
    return [m.body for m in [*queue.ready.messages(), *queue.scheduled.messages()]]


def everything(stage: StorageStage) -> list[bytes]:
    """Return the bodies of all messages that the broker has, wherever they are."""
    vhost = stage.broker.vhost("/")
    found: list[Message] = [leaving.message for leaving in stage.broker.turn.leaving]
    for queue in [*vhost.queues.values(), *vhost.holding.values()]:
        if not isinstance(queue, Stream):
            found.extend([*queue.ready.messages(), *queue.scheduled.messages()])
            found.extend(vhost.stuck.of(queue))
    for connection in stage.peers:
        for channel in connection.channels.values():
            found.extend(channel.unacked.messages())
    return [message.body for message in found]


# Functions in which a fault cannot be confined: they hold the handler of the fault.
NOT_CONFINED = {
    "expire",
    "release_due",
    "rescue",
    "_has_place",
}


@functools.cache
def targets() -> list[tuple[CodeType, int]]:
    """Return which call of which function is to fail: the first, a middle one and the last."""
    plan = Plan()
    Script(plan).play()
    return [
        (code, number)
        for code, count in sorted(plan.calls.items(), key=_place)
        if code.co_qualname not in NOT_CONFINED
        for number in sorted({1, (count + 1) // 2, count})
    ]


def _place(item: tuple[CodeType, int]) -> tuple[str, int]:
    code, _ = item
    return code.co_filename, code.co_firstlineno
