"""Walks through a queue that changes between their slices, compared with a list of the messages.

Random commands on a broker with a small window, so that messages are in memory, in the log and on
their way back. Walks with random slices run meanwhile, some from a saved cursor. A message that was
in a state when the walk got there, and is still there at its end, must have been seen there exactly
once. No message may be seen that was never there. The walk must not change the queue.
"""

from random import Random

import pytest

from leveret.engine.insight.filters import READY, SCHEDULED, STATES, UNACKED, Filter
from leveret.engine.insight.seek import BEFORE_ALL, line_groups
from leveret.engine.insight.walk import Walk, WalkCursor
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Session
from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.simulation.storage_stage import Client, StorageStage

KINDS: dict[str, dict[str, object]] = {
    "classic": {"x-delayed": True},
    "priorities": {"x-max-priority": 4, "x-delayed": True},
    "quorum": {"x-queue-type": "quorum"},
    "retrying": {
        "x-queue-type": "quorum",
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": 50,
        "x-delayed-retry-max": 400,
    },
}

Place = tuple[str, str]  # state and body


def sessions_of(stage: StorageStage) -> list[Session]:
    for number, connection in enumerate(stage.peers):
        connection.name = f"peer {number}"
    return [channel for peer in stage.peers for channel in peer.channels.values()]


def held_in(stage: StorageStage, queue: Queue) -> set[Place]:
    """Return every message of the queue and its state, found without a walk."""
    found = {(READY, m.body) for m in queue.ready.messages()}
    pages = queue.ready.pages
    assert pages is not None
    for run in queue.ready.paged_runs():
        view = run.view_last(run.left())
        while view.left():
            messages = pages.peek(view)
            view.at += len(messages)
            found |= {(READY, m.body) for m in messages}
    found |= {(SCHEDULED, m.body) for _, m in queue.scheduled.entries()}
    for session in sessions_of(stage):
        held = [*session.unacked.messages(), *session.undecided()]
        found |= {(UNACKED, m.body) for m in held if m.queue == queue.slot}
    return {(state, body.decode()) for state, body in found}


class Walking:
    """A walk under way, and the messages that it must find."""

    def __init__(self, stage: StorageStage, queue: Queue, needle: str) -> None:
        self.stage = stage
        self.queue = queue
        self.wanted = Filter()
        if needle:
            self.wanted.require_text(needle)
        self.needle = needle
        self.walk = self._made(None)
        self.seen: list[Place] = []
        self.stayed: dict[str, set[Place]] = {}  # by state, since the walk got there

    def _made(self, cursor: WalkCursor | None) -> Walk:
        stuck = self.stage.broker.vhost("/").stuck
        return Walk(self.queue, stuck, self.wanted, sessions_of(self.stage), cursor)

    def step(self, rng: Random) -> bool:
        """Walk one slice. Return False when the walk is over."""
        if rng.random() < 0.3:
            self.walk = self._made(self.walk.cursor)
        before = held_in(self.stage, self.queue)
        self._note(before)
        self.walk.step(rng.choice((1, 3, 20)), rng.choice((1, 5, 1000)), 1 << 20)
        self._note(before)
        assert held_in(self.stage, self.queue) == before
        for found in self.walk.take():
            self.seen.append((found.state, found.message.body.decode()))
            assert self.seen[-1] in before, "was never there"
        return not self.walk.is_done()

    def _note(self, held: set[Place]) -> None:
        reached = min(int(self.walk.cursor.state), len(STATES) - 1)
        for state in STATES[: reached + 1]:
            here = {place for place in held if place[0] == state and self.needle in place[1]}
            stayed = self.stayed.setdefault(state, here)
            stayed &= here

    def note_change(self) -> None:
        """Remove the messages that have left their state from the list."""
        self._note(held_in(self.stage, self.queue))

    def check(self) -> None:
        for state, stayed in self.stayed.items():
            counts = [self.seen.count(place) for place in sorted(stayed)]
            assert counts == [1] * len(stayed), (state, sorted(stayed), counts)


class Commands:
    """Random changes of the queue during a walk."""

    def __init__(self, stage: StorageStage, queue: Queue, rng: Random) -> None:
        self.client = Client(stage)
        self.stage = stage
        self.queue = queue
        self.rng = rng
        self.tags: list[int] = []
        self.number = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            properties: dict[str, object] = {
                "delivery_mode": self.rng.choice((1, 2)),
                "priority": self.rng.randrange(5),
            }
            if self.rng.random() < 0.3:
                properties["headers"] = {"x-delay": self.rng.randrange(1, 3000)}
            mark = "odd" if self.number % 2 else "even"
            body = f"{mark} {self.number}" + "x" * self.rng.choice((0, 0, 300))
            self.client.publish("q", body.encode(), properties)

    def get(self, count: int) -> None:
        for _ in range(count):
            found = self.client.get("q")
            if found is None:
                return
            self.tags.append(found.fields["delivery_tag"])  # type: ignore[arg-type]

    def settle(self, count: int) -> None:
        for _ in range(min(count, len(self.tags))):
            tag = self.tags.pop(self.rng.randrange(len(self.tags)))
            if self.rng.random() < 0.5:
                self.client.call(3, "basic.ack", delivery_tag=tag)
            else:
                self.client.call(3, "basic.nack", delivery_tag=tag, requeue=True)

    def random(self) -> None:
        choice = self.rng.random()
        if choice < 0.4:
            self.publish(self.rng.randrange(8))
        elif choice < 0.6:
            self.get(self.rng.randrange(10))
        elif choice < 0.8:
            self.settle(self.rng.randrange(10))
        elif choice < 0.98:
            self.stage.advance(self.rng.randrange(200))
        else:
            self.client.call(2, "queue.purge", queue="q")
        self.client.read()


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("number", range(volume(3, 1)))
def test_a_message_that_stays_is_seen_once_however_the_queue_changes(
    kind: str, number: int, seed: int
) -> None:
    rng = Random(f"{seed}-{kind}-{number}")
    stage = StorageStage(FakeDisk(), file_bytes=3000, window=6)
    Client(stage).declare("q", **KINDS[kind])
    queue = stage.broker.vhost("/").queues["q"]
    queue.ready.window = 6
    queue.scheduled.window = 6
    commands = Commands(stage, queue, rng)
    commands.publish(60)
    commands.get(20)
    for _ in range(6):
        walking = Walking(stage, queue, rng.choice(("", "odd", "even 1")))
        slices = 0
        while walking.step(rng):
            slices += 1
            assert slices < 3000, f"the walk does not end (seed {seed})"
            if rng.random() < 0.5:
                commands.random()
                walking.note_change()
        walking.check()
    stage.abandon()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_ready_messages_are_seen_in_the_order_of_delivery(kind: str, seed: int) -> None:
    rng = Random(f"{seed}-{kind}")
    stage = StorageStage(FakeDisk(), file_bytes=3000, window=6)
    Client(stage).declare("q", **KINDS[kind])
    queue = stage.broker.vhost("/").queues["q"]
    queue.ready.window = 6
    commands = Commands(stage, queue, rng)
    commands.publish(80)
    for _ in range(40):
        commands.random()
    wanted = Filter()
    wanted.require_states([READY])
    walk = Walk(queue, stage.broker.vhost("/").stuck, wanted, [])
    while not walk.is_done():
        walk.step(7, 1000, 1 << 20)
    seen = [found.message.body for found in walk.take()]
    assert len(seen) == queue.ready.count, (seed, line_groups(queue.ready, BEFORE_ALL))
    assert seen == [m.body for m in commands.client.drain("q")], seed
    stage.abandon()
