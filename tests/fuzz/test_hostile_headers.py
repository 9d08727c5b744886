"""Values that clients make up: none that the engine reads is a fault, now or at the next start.

The engine reads `x-death`, `x-first-death-*`, `x-delivery-count`, `x-delay`, deduplication keys,
CC, BCC, the priority, the expiration and the timestamp of a message, the arguments of queues, and
policies. Messages with random values go through queues with every feature, and through queues with
random arguments and policies. The broker may refuse a value, but it must not fail.
"""

from random import Random
from typing import Any

import pytest

from leveret.engine.arguments.policy_keys import POLICY_KEYS
from leveret.engine.arguments.rules import QUEUE_RULES
from leveret.errors import LeveretError
from leveret.testing.disk import FakeDisk
from tests.compat.wire import Typed
from tests.protocol.stage import method, publish
from tests.simulation.fault_injection import EXCHANGES, QUEUES
from tests.simulation.storage_stage import Client, StorageStage

RUNS = 6
MESSAGES = 80
OBJECTS = 20
DEPTH_MAX = 4  # of tables and lists in each other
NUMBERS = (0, 1, -1, 2, 255, 256, 2**31 - 1, 2**32 - 1, 2**32, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "0", "-1", "9" * 30, "9" * 5000, "1e9", " 1", "dead", "k" * 300, "ä" * 200, "\x00")
REASONS = ("rejected", "expired", "maxlen", "delivery_limit", "other")
HEADERS = (
    "x-death",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-delivery-count",
    "x-acquired-count",
    "x-delay",
    "x-deduplication-id",
    "x-parked-reason",
    "x-stream-filter-value",
    "x-stream-offset",
    "traceparent",
    "CC",
    "BCC",
)


def value(rng: Random, depth: int = 0) -> Any:
    """Return a random field value."""
    if depth < DEPTH_MAX and rng.random() < 0.15:
        if rng.random() < 0.5:
            return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
        return {rng.choice(TEXTS[:4]): value(rng, depth + 1) for _ in range(3)}
    number = rng.choice(NUMBERS)
    choices: list[Any] = [
        number,
        Typed("l", number),
        Typed("T", abs(number)),
        Typed("L", abs(number)),
        Typed("d", rng.choice((float("nan"), float("inf"), -1e308, 0.5))),
        Typed("D", (255, 2**32 - 1)),
        Typed("S", rng.randbytes(rng.choice((1, 300)))),
        rng.choice(TEXTS),
        rng.random() < 0.5,
        None,
    ]
    return rng.choice(choices)


def death(rng: Random) -> Any:
    """Return an entry of x-death with some fields that look right."""
    entry = {
        "count": rng.choice((1, value(rng))),
        "reason": rng.choice((*REASONS, value(rng))),
        "queue": rng.choice((*QUEUES, value(rng))),
        "time": value(rng),
        "exchange": value(rng),
        "routing-keys": rng.choice((["k"], value(rng))),
        "copies": value(rng),
    }
    return {name: entry[name] for name in entry if rng.random() < 0.8}


def headers(rng: Random) -> dict[str, Any]:
    found = {name: value(rng) for name in HEADERS if rng.random() < 0.25}
    if rng.random() < 0.7:
        found["x-death"] = [rng.choice((death(rng), value(rng))) for _ in range(rng.randrange(5))]
    if rng.random() < 0.3:
        found["CC"] = [rng.choice((*QUEUES, value(rng))) for _ in range(3)]
    if rng.random() < 0.3:
        found["x-delay"] = rng.choice((1, 50, *NUMBERS))
    return found


def properties(rng: Random) -> dict[str, object]:
    found: dict[str, object] = {"delivery_mode": 2, "headers": headers(rng)}
    if rng.random() < 0.3:
        found["expiration"] = rng.choice(
            ("0", "5", str(2**32 - 1), *[t for t in TEXTS if len(t) < 99])
        )
    if rng.random() < 0.3:
        found["priority"] = rng.choice((0, 1, 9, 255))
    if rng.random() < 0.3:
        found["timestamp"] = rng.choice([abs(number) for number in NUMBERS])
    if rng.random() < 0.3:
        found["message_id"] = rng.choice(("", "a", "k" * 255))
    return found


class Attack:
    """A client that sends random values, and connects again when it is refused."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.stage = StorageStage(FakeDisk())
        self.client = Client(self.stage)
        for name, arguments in QUEUES.items():
            self.client.declare(name, **arguments)
        for kind, more in EXCHANGES.items():
            self.feed(
                method(
                    2, "exchange.declare", exchange=kind, type=kind, durable=True, arguments=more
                )
            )
            for queue in ("expiring", "stream"):
                self.feed(method(2, "queue.bind", queue=queue, exchange=kind, routing_key="1"))

    def feed(self, data: bytes) -> None:
        channels = self.client.peer.connection.channels
        if self.client.peer.hung_up() or any(channel.is_closing for channel in channels.values()):
            self.client.peer.lose()
        if not self.client.peer.connection.channels:
            self.client = Client(self.stage)
        self.client.peer.feed(data)
        self.client.peer.take()

    def send_message(self) -> None:
        rng = self.rng
        exchange = rng.choice(("", "", *EXCHANGES))
        key = rng.choice(sorted(self.stage.broker.vhost("/").queues)) if not exchange else "1"
        self.feed(publish(1, key, b"x", properties(rng), exchange=exchange))

    def settle(self) -> None:
        """Take a message, and send it back or on."""
        queue = self.rng.choice(sorted(QUEUES))
        self.feed(method(3, "basic.get", queue=queue))
        self.feed(
            method(3, "basic.nack", delivery_tag=0, multiple=True, requeue=self.rng.random() < 0.5)
        )

    def advance(self) -> None:
        self.stage.advance(self.rng.choice((1, 100, 2_000)))

    def restart(self) -> None:
        self.stage.sync_all()
        self.stage = StorageStage(self.stage.killed(), now_ms=self.stage.now_ms)
        self.client = Client(self.stage)

    def check(self) -> None:
        turn = self.stage.broker.turn
        assert turn.fault_count == 0, turn.faults

    def drain(self) -> None:
        """Deliver everything, so that each message is read back from the log."""
        for name, queue in list(self.stage.broker.vhost("/").queues.items()):
            if queue.settings.kind != "stream" and not queue.paused:
                self.feed(method(2, "basic.consume", queue=name, no_ack=True))


@pytest.mark.parametrize("number", range(RUNS))
def test_no_header_is_a_fault(number: int, seed: int) -> None:
    attack = Attack(Random(f"{seed} {number}"))
    for _ in range(MESSAGES):
        attack.rng.choice(
            (attack.send_message, attack.send_message, attack.settle, attack.advance)
        )()
        attack.check()
    for _ in range(2):
        attack.restart()
        attack.check()
        attack.advance()
        attack.check()
    attack.drain()
    attack.check()


@pytest.mark.parametrize("number", range(RUNS))
def test_no_argument_and_no_policy_is_a_fault(number: int, seed: int) -> None:
    attack = Attack(Random(f"{seed} {number}"))
    rng = attack.rng
    names = [rule.name for rule in QUEUE_RULES]
    for at in range(OBJECTS):
        arguments = {name: value(rng) for name in rng.sample(names, rng.choice((1, 1, 2)))}
        if rng.random() < 0.7:
            arguments["x-dead-letter-exchange"] = rng.choice(("", *EXCHANGES))
        data = method(2, "queue.declare", queue=f"made{at}", durable=True, arguments=arguments)
        attack.feed(data)
        set_policy(attack, rng.choice(sorted(POLICY_KEYS)))
        attack.send_message()
        attack.check()
        if at % 10 == 0:
            attack.advance()
            attack.check()
    for _ in range(2):
        attack.restart()
        attack.check()
        attack.advance()
        attack.check()
    attack.drain()
    attack.check()


def set_policy(attack: Attack, key: str) -> None:
    rng = attack.rng
    stage = attack.stage
    definition = {key: rng.choice((*NUMBERS, *TEXTS, True, None, 0.5, [1], {"a": 1}))}
    given = {"pattern": rng.choice(("made", "^expiring$", ".*")), "definition": definition}
    stage.broker.begin_turn(stage.now_ms)
    try:
        stage.definitions.policies.put("/", f"p{rng.randrange(5)}", {"priority": 1, **given})
    except LeveretError:
        return
    finally:
        stage.end_turn()
