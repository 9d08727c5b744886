"""Move, copy, delete and redrive picked messages, and compare with lists of the messages.

Random commands fill queues whose messages are in memory, in the log alone, scheduled, in flight and
requeued. Random picks take some out. The tests compare what `peek` and the schedule show before and
after, the accounts of the log, and the state after a restart or a kill at any write to the disk.
"""

from random import Random
from typing import Final

import pytest

from leveret.engine.commands.moving import COPY, DELETE, MOVE, REDRIVE, Destination, Mover
from leveret.engine.commands.picking import Lookup, plan
from leveret.engine.insight.peek import peek
from leveret.engine.queues.queue import Queue
from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.simulation.storage_stage import Client, StorageStage, positions_by_file

WINDOW: Final = 4
ALL: Final = 1 << 40
KINDS: Final[dict[str, dict[str, object]]] = {
    "classic": {"x-delayed": True},
    "priorities": {"x-delayed": True, "x-max-priority": 3},
    "quorum": {"x-queue-type": "quorum"},
}


def anybody(vhost: str, what: str, name: str, key: str) -> bool:
    return True


def started(disk: FakeDisk, now_ms: int | None = None) -> StorageStage:
    if now_ms is None:
        return StorageStage(disk, file_bytes=8192, window=WINDOW)
    return StorageStage(disk, file_bytes=8192, window=WINDOW, now_ms=now_ms)


def queue_of(stage: StorageStage, name: str) -> Queue:
    return stage.broker.vhost("/").queues[name]


def ready(stage: StorageStage, name: str) -> list[bytes]:
    return [message.body for message in peek(queue_of(stage, name), ALL, ALL)]


def scheduled(stage: StorageStage, name: str) -> list[tuple[int, bytes]]:
    return [(due, message.body) for due, message in queue_of(stage, name).scheduled.entries()]


def carry_out(stage: StorageStage, kind: str, source: str, target: str, seqs: list[int]) -> Mover:
    """Carry out a move in one turn, and return the mover."""
    vhost = stage.broker.vhost("/")
    mover = Mover(
        queue_of(stage, source), kind, Destination(vhost, target, None, None), False, anybody
    )
    stage.broker.begin_turn(stage.now_ms)
    look = Lookup(queue_of(stage, source), seqs, ALL)
    assert look.count == len(seqs)
    assert mover.carry_out(look.picked, dry_run=False) == len(look.picked)
    stage.end_turn()
    return mover


def check_accounts(stage: StorageStage) -> None:
    """Check that the counts of every queue and of the log match their messages."""
    stage.sync_all()
    for queue in stage.broker.slots.queues:
        if queue is not None:
            found = peek(queue, ALL, ALL)
            assert queue.ready.count == len(found)
            assert queue.ready.body_bytes == sum(len(message.body) for message in found)
            waiting = queue.scheduled.entries()
            assert len(queue.scheduled) == len(waiting)
            assert queue.scheduled.body_bytes == sum(len(m.body) for _, m in waiting)
    live = {file: count for file, count in stage.store.journal.live.items() if count}
    assert dict(positions_by_file(stage)) == live


class Story:
    """Random commands on a source and a target."""

    def __init__(self, rng: Random, kind: str) -> None:
        self.rng = rng
        self.stage = started(FakeDisk())
        self.client = Client(self.stage)
        self.client.declare("source", **KINDS[kind])
        self.client.declare("target")
        self.serial = 0
        self.held: list[int] = []
        self.is_durable = True  # nothing transient so far

    def publish(self) -> None:
        rng = self.rng
        for _ in range(rng.randrange(1, 25)):
            self.serial += 1
            properties: dict[str, object] = {"delivery_mode": 2, "priority": rng.randrange(4)}
            if not self.is_durable:
                properties["delivery_mode"] = rng.randrange(1, 3)
            if rng.random() < 0.3:
                properties["headers"] = {"x-delay": rng.choice((50, 50, rng.randrange(1, 400)))}
            body = b"%d " % self.serial + b"x" * rng.randrange(200)
            self.client.publish("source", body, properties)

    def take(self) -> None:
        """Get some messages, and settle some of those in flight."""
        rng = self.rng
        for _ in range(rng.randrange(6)):
            found = self.client.get("source")
            if found is not None:
                self.held.append(int(str(found.fields["delivery_tag"])))
        rng.shuffle(self.held)
        for _ in range(rng.randrange(len(self.held) + 1)):
            tag = self.held.pop()
            name = rng.choice(("basic.ack", "basic.nack", "basic.nack"))
            fields: dict[str, object] = {"delivery_tag": tag}
            if name == "basic.nack":
                fields["requeue"] = True
            self.client.call(3, name, **fields)

    def advance(self) -> None:
        self.stage.advance(self.rng.randrange(100))

    def move(self) -> None:
        rng = self.rng
        stage = self.stage
        kind = rng.choice((MOVE, MOVE, COPY, DELETE))
        all_ready = ready(stage, "source")
        waiting = scheduled(stage, "source")
        have = (ready(stage, "target"), scheduled(stage, "target"))
        seqs = list(plan(queue_of(stage, "source"), with_ready=True, with_scheduled=True))
        assert len(seqs) == len(all_ready) + len(waiting)
        first = rng.randrange(len(seqs) + 1)
        chosen = seqs[first : first + rng.randrange(60)]
        if rng.random() < 0.5:
            chosen = sorted(rng.sample(seqs, rng.randrange(len(seqs) + 1)), key=seqs.index)
        asked = [*chosen, 1 << 39] if rng.random() < 0.2 else chosen
        picked = Lookup(queue_of(stage, "source"), chosen, ALL).picked
        bodies = [one.message.body for one in picked if not one.due_ms]
        dues = [(int(one.due_ms), one.message.body) for one in picked if one.due_ms]
        assert carry_out(stage, kind, "source", "target", asked).done == len(chosen)
        if kind != COPY:
            all_ready = [body for body in all_ready if body not in bodies]
            waiting = [entry for entry in waiting if entry not in dues]
        assert ready(stage, "source") == all_ready
        assert scheduled(stage, "source") == waiting
        if kind == DELETE:
            bodies, dues = [], []
        assert ready(stage, "target") == have[0] + bodies
        # Sorting is stable: of the same time, those that were there come first.
        assert scheduled(stage, "target") == sorted(have[1] + dues, key=lambda entry: entry[0])
        check_accounts(stage)

    def restart(self) -> None:
        """Check that a restart changed nothing, and that messages in flight are ready again."""
        stage = self.stage
        target = (ready(stage, "target"), scheduled(stage, "target"))
        count = int(queue_of(stage, "source").ready.count + queue_of(stage, "source").unacked)
        waiting = scheduled(stage, "source")
        stage.sync_all()
        is_clean = self.rng.random() < 0.5
        self.stage = started(stage.stop() if is_clean else stage.killed(), stage.now_ms)
        self.client = Client(self.stage)
        self.held = []
        assert (ready(self.stage, "target"), scheduled(self.stage, "target")) == target
        assert queue_of(self.stage, "source").ready.count == count
        assert sorted(scheduled(self.stage, "source")) == sorted(waiting)
        check_accounts(self.stage)


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("number", range(volume(3, 1)))
def test_picked_messages_move_and_the_rest_stays(
    seed: int, number: int, kind: str, is_durable: bool
) -> None:
    print(f"seed {seed}, run {number}, {kind}")
    story = Story(Random(f"{seed} {number} {kind}"), kind)
    story.is_durable = is_durable
    steps = [story.publish, story.publish, story.take, story.advance, story.move]
    if is_durable:
        steps.append(story.restart)
    for _ in range(60):
        story.rng.choice(steps)()
    story.stage.stop()


def test_a_kill_at_any_write_leaves_each_message_in_one_place() -> None:
    disk = FakeDisk()
    stage = started(disk)
    client = Client(stage)
    client.declare("source", **{"x-delayed": True})
    client.declare("target")
    for number in range(40):
        headers = {"x-delay": 5000} if number % 5 == 0 else {}
        properties = {"delivery_mode": 2, "headers": headers}
        client.publish("source", b"%d" % number, properties)
    stage.sync_all()
    first = disk.moment
    seqs = list(plan(queue_of(stage, "source"), with_ready=True, with_scheduled=True))
    for at in range(0, len(seqs), 7):
        carry_out(stage, MOVE, "source", "target", seqs[at : at + 7])
        stage.sync_all()
    last = disk.moment
    stage.abandon()
    splits: set[int] = set()
    for moment in range(first, last + 1):
        after = started(disk.killed(moment))
        found = [
            ready(after, name) + [b for _, b in scheduled(after, name)]
            for name in ("source", "target")
        ]
        assert sorted(found[0] + found[1], key=int) == [b"%d" % n for n in range(40)]
        assert len(found[1]) % 7 == 0 or len(found[1]) == 40
        splits.add(len(found[1]))
        check_accounts(after)
        after.stop()
    assert splits == {0, 7, 14, 21, 28, 35, 40}


def test_redrive_returns_a_message_to_its_first_queue_with_all_its_attempts() -> None:
    stage = started(FakeDisk())
    client = Client(stage)
    client.declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare("work", **{"x-queue-type": "quorum", "x-delivery-limit": 2}, **arguments)
    client.publish(
        "work", b"m", {"delivery_mode": 2, "message_id": "id-1", "headers": {"traceparent": "t"}}
    )
    for count in (1, 2):
        for _ in range(3):
            found = client.get("work")
            assert found is not None
            client.call(3, "basic.reject", delivery_tag=found.fields["delivery_tag"], requeue=True)
        assert (ready(stage, "work"), ready(stage, "dead")) == ([], [b"m"])
        seqs = list(plan(queue_of(stage, "dead"), with_ready=True, with_scheduled=True))
        mover = carry_out(stage, REDRIVE, "dead", "", seqs)
        assert (mover.done, mover.skipped, mover.targets) == (1, {}, {"work": 1})
        found = client.get("work")
        assert found is not None and found.content is not None
        headers = found.content.properties["headers"]
        assert isinstance(headers, dict)
        headers = {name: field.value for name, field in headers.items()}
        assert found.content.properties["message_id"] == "id-1"
        assert headers["traceparent"] == "t"
        assert headers["x-redrive-count"] == count
        assert len(headers["x-redrive-history"]) == count
        assert headers.keys() == {"traceparent", "x-redrive-count", "x-redrive-history"}
        assert (found.fields["exchange"], found.fields["routing_key"]) == ("", "work")
        client.call(3, "basic.nack", delivery_tag=found.fields["delivery_tag"], requeue=True)
    stage.stop()
