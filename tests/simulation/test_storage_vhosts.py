"""Vhosts and policies on disk: after any crash a vhost exists completely, or not at all.

Random vhosts are created, filled and deleted. After every step the test notes the state that the
log describes up to that block. A node that starts from the disk of any moment must find exactly one
of these states, and none older than the state that was on disk by then.
"""

import json
from random import Random

import pytest

from leveret.definitions import Definitions
from leveret.definitions.definitions import attach_definitions
from leveret.engine.message import Address
from leveret.storage.file_names import segments_by_stream
from leveret.storage.repair import repair
from leveret.testing.disk import FakeDisk
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import table_of
from tests.protocol.stage import START_MS
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

HEADER = encode_header(Properties(), 1)

Seen = dict[str, tuple[object, ...]]


class Stage(StorageStage):
    """A broker on a disk of small files."""

    def __init__(self, disk: FakeDisk, now_ms: int = START_MS) -> None:
        super().__init__(disk, file_bytes=4096, now_ms=now_ms)

    def turn(self) -> Definitions:
        self.broker.begin_turn(self.now_ms)
        return self.definitions


def seen(stage: Stage) -> Seen:
    """Return the durable state of the vhosts."""
    definitions = stage.definitions
    return {
        name: (
            sorted(
                (queue.name, queue.settings.max_length, int(queue.message_count()))
                for queue in vhost.queues.values()
            ),
            sorted(exchange for exchange in vhost.exchanges if not exchange.startswith("amq.")),
            json.dumps(definitions.vhosts.metadata(name), sort_keys=True),
            [row[1] for row in definitions.policies.all(name)],
        )
        for name, vhost in sorted(stage.broker.vhosts.items())
    }


def step(stage: Stage, rng: Random) -> None:
    definitions = stage.turn()
    broker = stage.broker
    name = rng.choice(["a", "b", "c"])
    act = rng.randrange(6)
    if name not in broker.vhosts or act == 0:
        definitions.vhosts.put(name, {"description": str(rng.randrange(9))})
    elif act == 1:
        definitions.delete_vhost(name)
    elif act == 2:
        policy = {
            "pattern": "q",
            "definition": {"max-length": rng.randrange(5, 9)},
            "priority": 0,
        }
        definitions.policies.put(name, "p", policy)
    else:
        vhost = broker.vhost(name)
        queue = vhost.declare_queue(f"q{rng.randrange(4)}", durable=True, arguments={})
        vhost.declare_exchange("x", "fanout", durable=True, arguments={})
        vhost.bind("x", queue, "", {})
        if rng.random() < 0.3:
            stream = table_of({"x-queue-type": "stream"})
            vhost.declare_queue("s", durable=True, arguments=stream)
    stage.end_turn()
    stage.advance(0)


@pytest.mark.parametrize("seed", range(12))
def test_after_a_crash_each_vhost_is_whole_or_not_there(seed: int) -> None:
    print("seed", seed)
    rng = Random(seed)
    stage = Stage(FakeDisk())
    history = [seen(stage)]
    synced: list[tuple[int, int]] = []  # moment of the disk, state that was on disk by then
    for _ in range(40):
        step(stage, rng)
        history.append(seen(stage))
        if rng.random() < 0.4:
            stage.sync_all()
            synced.append((stage.disk.moment, len(history) - 1))
    stage.abandon()
    for _ in range(4):
        moment = rng.randrange(stage.disk.moment + 1)
        least = max([state for when, state in synced if when <= moment], default=0)
        again = Stage(stage.disk.crash(rng, moment), now_ms=stage.now_ms)
        assert seen(again) in history[least:]
        assert again.found.losses == []
        again.stop()


def test_messages_of_a_deleted_vhost_do_not_come_back() -> None:
    stage = Stage(FakeDisk())
    stage.turn().vhosts.put("v", {})
    vhost = stage.broker.vhost("v")
    vhost.declare_queue("q", durable=True, arguments={})
    stage.end_turn()
    client = Client(stage)
    client.declare("q")
    client.publish("q", b"stays")
    stage.turn().delete_vhost("v")
    stage.end_turn()
    stage.turn().vhosts.put("v", {})
    stage.end_turn()
    stage.sync_all()
    again = Stage(stage.killed(), now_ms=stage.now_ms)
    assert list(again.broker.vhost("v").queues) == []
    assert bodies_in(again, "q") == [b"stays"]
    again.stop()


def test_the_first_vhost_can_be_deleted_for_good() -> None:
    stage = Stage(FakeDisk())
    stage.turn().vhosts.put("v", {})
    stage.turn().delete_vhost("/")
    stage.end_turn()
    stage.sync_all()
    for _ in range(2):  # from the log, then from a checkpoint
        again = Stage(stage.killed(), now_ms=stage.now_ms)
        assert list(again.broker.vhosts) == ["v"]
        stage = again
    stage.stop()


def test_policies_are_in_force_before_the_first_message_after_a_start() -> None:
    stage = Stage(FakeDisk())
    client = Client(stage)
    policy: dict[str, object] = {
        "pattern": "^q$",
        "definition": {"deduplication": {"header": "message_id"}, "max-length": 3},
        "priority": 0,
    }
    stage.turn().policies.put("/", "p", policy)
    stage.end_turn()
    client.declare("q")
    for number in range(4):
        client.publish("q", b"%d" % number, {"delivery_mode": 2, "message_id": str(number)})
    stage.sync_all()
    for _ in range(2):
        stage = Stage(stage.killed(), now_ms=stage.now_ms)
        queue = stage.broker.vhost("/").queues["q"]
        assert (queue.policy, queue.settings.max_length) == ("p", 3)
        assert queue.deduplication is not None
        assert queue.deduplication.count() == 4, "what was known is known"
    client = Client(stage)
    client.publish("q", b"again", {"delivery_mode": 2, "message_id": "0"})
    assert bodies_in(stage, "q") == [b"1", b"2", b"3"]
    stage.stop()


def test_what_an_exchange_knows_by_policy_survives() -> None:
    stage = Stage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    client.call(2, "queue.bind", queue="q", exchange="amq.fanout", routing_key="")
    policy: dict[str, object] = {
        "pattern": "^amq.fanout$",
        "definition": {"deduplication": {"header": "message_id"}},
        "priority": 0,
    }
    stage.turn().policies.put("/", "p", policy)
    stage.end_turn()
    stage.advance(0)
    client.publish("", b"a", {"delivery_mode": 2, "message_id": "1"}, "amq.fanout")
    stage.sync_all()
    for _ in range(2):
        stage = Stage(stage.killed(), now_ms=stage.now_ms)
        client = Client(stage)
        client.publish("", b"b", {"delivery_mode": 2, "message_id": "1"}, "amq.fanout")
        stage.sync_all()
    assert bodies_in(stage, "q") == [b"a"]
    stage.stop()


def test_streams_of_a_deleted_vhost_leave_no_file() -> None:
    stage = Stage(FakeDisk())
    stage.turn().vhosts.put("v", {})
    stream = table_of({"x-queue-type": "stream"})
    vhost = stage.broker.vhost("v")
    vhost.declare_queue("s", durable=True, arguments=stream)
    vhost.queues["s"].push(
        Address("", "s"), HEADER, b"m", ttl_ms=-1, priority=-1, flags=0, delay_ms=0
    )
    stage.end_turn()
    stage.sync_all()
    assert segments_by_stream(stage.disk.names())
    stage.turn().delete_vhost("v")
    stage.end_turn()
    stage.sync_all()
    moments = range(stage.disk.moment - 6, stage.disk.moment + 1)
    stage.abandon()
    for moment in moments:
        again = Stage(stage.disk.killed(moment), now_ms=stage.now_ms)
        left = [name for name in again.disk.names() if ".segment" in name]
        assert bool(left) == ("v" in again.broker.vhosts)
        again.stop()


def test_a_repair_keeps_what_is_known_by_policy() -> None:
    stage = Stage(FakeDisk())
    client = Client(stage)
    policy: dict[str, object] = {
        "pattern": "^q$",
        "definition": {"deduplication": {"header": "message_id"}},
        "priority": 0,
    }
    stage.turn().policies.put("/", "p", policy)
    stage.end_turn()
    client.declare("q")
    client.declare("other")
    client.publish("q", b"kept", {"delivery_mode": 2, "message_id": "1"})
    client.publish("other", b"damaged")
    client.publish("q", b"kept too", {"delivery_mode": 2, "message_id": "2"})
    stage.sync_all()
    disk = stage.killed()
    (name,) = [name for name in disk.names() if name.endswith(".log")]
    at = disk.open(name).read(1 << 20, 0).find(b"damaged")
    disk.flip(name, at * 8)
    assert not repair(disk, prepare=attach_definitions).is_sound
    again = Stage(disk, now_ms=stage.now_ms)
    queue = again.broker.vhost("/").queues["q"]
    assert queue.deduplication is not None
    assert queue.deduplication.count() == 2
    assert bodies_in(again, "q") == [b"kept", b"kept too"]
    again.stop()
