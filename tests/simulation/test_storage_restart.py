"""Each feature after a restart: acks, order, priorities, times, counts, copies.

The random loads of `test_storage_crash` cover all of this, too. Here each feature has its own quick
test, whose name tells the fault. Each test covers every source from which a start can learn the
state: the log, the index of a full file, and the checkpoint.
"""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from leveret.engine.backlog.ready import LAZY_WINDOW
from leveret.engine.queues.state import BATCH
from leveret.storage.file_names import SYNCED
from leveret.testing.disk import RENAME, WRITE, FakeDisk
from leveret.wire.scan import NESTING_MAX
from leveret.wire.tables import plain_table
from tests.compat.client import Method
from tests.compat.wire import Typed
from tests.protocol.stage import publish
from tests.simulation.storage_stage import PERSISTENT, Client, StorageStage, bodies_in

TINY = 1024  # bytes of a log file: a few messages
QUARTER_MS = 900_000


def began(file_bytes: int = 1 << 20) -> tuple[StorageStage, Client]:
    stage = StorageStage(FakeDisk(), file_bytes=file_bytes)
    return stage, Client(stage)


def from_log(stage: StorageStage) -> StorageStage:
    """Restart from the log only."""
    stage.sync_all()
    return StorageStage(stage.killed(), now_ms=stage.now_ms)


def from_checkpoint(stage: StorageStage) -> StorageStage:
    """Restart twice: the second start reads the index and checkpoint of the first."""
    first = from_log(stage)
    return StorageStage(first.killed(), now_ms=stage.now_ms)


def after_a_roll(stage: StorageStage) -> StorageStage:
    """Begin a new log file first: a checkpoint of the running node covers everything before."""
    client = Client(stage)
    client.declare("filler")
    files = stage.disk.counts["create"]
    while stage.disk.counts["create"] < files + 3:  # the index, the log file and the checkpoint
        client.publish("filler", b"f" * 300)
    return from_log(stage)


Way = Callable[[StorageStage], StorageStage]
ways = pytest.mark.parametrize("way", [from_log, from_checkpoint, after_a_roll])


def tag_of(message: Method | None) -> object:
    assert message is not None
    return message.fields["delivery_tag"]


@ways
def test_acked_message_is_gone_and_its_neighbours_are_not(way: Way) -> None:
    stage, client = began(TINY)
    client.declare("q")
    for body in (b"a", b"b", b"c", b"d", b"e"):
        client.publish("q", body)
    tags = [tag_of(client.get("q")) for _ in range(4)]
    for index in (0, 2):
        client.call(3, "basic.ack", delivery_tag=tags[index])
    stage = way(stage)
    assert bodies_in(stage, "q") == [b"b", b"d", b"e"]
    stage.stop()


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_message_that_was_delivered_says_so_and_one_that_was_not_does_not(starts: int) -> None:
    """After clean stops; after a crash any message may have been delivered."""
    stage, client = began(TINY)
    client.declare("q")
    for body in (b"a", b"b", b"c"):
        client.publish("q", body)
    client.get("q")
    client.get("q")
    for _ in range(starts):
        stage = StorageStage(stage.stop(), now_ms=stage.now_ms, file_bytes=TINY)
    found = [(m.body, m.fields["redelivered"]) for m in Client(stage).drain("q")]
    assert found == [(b"a", True), (b"b", True), (b"c", False)]
    stage.stop()


@ways
def test_priorities_are_kept(way: Way) -> None:
    stage, client = began(TINY)
    client.declare("q", **{"x-max-priority": 9})
    for priority in (1, 5, 9, 5, 1):
        body = b"%d.%d" % (priority, client.published)
        client.publish("q", body, {"delivery_mode": 2, "priority": priority})
    stage = way(stage)
    assert bodies_in(stage, "q") == [b"9.2", b"5.1", b"5.3", b"1.0", b"1.4"]
    stage.stop()


@ways
def test_delayed_message_keeps_its_time(way: Way) -> None:
    stage, client = began(TINY)
    client.declare("q")
    later = {"x-delayed-type": "direct"}
    name = "x-delayed-message"
    client.call(2, "exchange.declare", exchange="later", type=name, durable=True, arguments=later)
    client.call(2, "queue.bind", queue="q", exchange="later", routing_key="q")
    delayed: dict[str, object] = {"delivery_mode": 2, "headers": {"x-delay": QUARTER_MS}}
    client.publish("q", b"m", delayed, "later")
    stage.advance(QUARTER_MS - 2)
    stage = way(stage)
    stage.advance(1)
    assert bodies_in(stage, "q") == []
    stage.advance(1)
    assert bodies_in(stage, "q") == [b"m"]
    stage.stop()


@ways
def test_retry_keeps_its_time_and_its_counts(way: Way) -> None:
    stage, client = began(TINY)
    retry: dict[str, object] = {
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": QUARTER_MS,
        "x-delayed-retry-max": QUARTER_MS,
        "x-delivery-limit": 5,
    }
    client.declare("q", **retry)
    client.publish("q", b"m")
    client.call(3, "basic.reject", delivery_tag=tag_of(client.get("q")), requeue=True)
    stage.advance(QUARTER_MS - 2)
    stage = way(stage)
    stage.advance(1)
    assert Client(stage).get("q") is None
    stage.advance(1)
    message = Client(stage).get("q")
    assert message is not None
    assert message.content is not None
    assert message.content.headers["x-delivery-count"] == Typed("l", 1)
    stage.stop()


@ways
def test_expiry_is_kept(way: Way) -> None:
    stage, client = began(TINY)
    client.declare("q")
    client.publish("q", b"m", {"delivery_mode": 2, "expiration": "1000"})
    client.publish("q", b"n")
    stage = way(stage)
    stage.advance(999)
    client = Client(stage)
    first = client.get("q")
    assert first is not None
    assert first.body == b"m"
    client.call(3, "basic.nack", delivery_tag=tag_of(first), requeue=True)
    stage.advance(1)
    assert bodies_in(stage, "q") == [b"n"]
    stage.stop()


@ways
def test_copies_of_one_message_are_whole_in_every_queue(way: Way) -> None:
    stage, client = began(TINY)
    names = ["one", "two", "three"]
    for name in names:
        client.declare(name)
        client.call(2, "queue.bind", queue=name, exchange="amq.fanout")
    for body in (b"a" * 50, b"b"):
        client.publish("", body, exchange="amq.fanout")
    client.drain("one")
    stage = way(stage)
    assert [bodies_in(stage, name) for name in names] == [[], *[[b"a" * 50, b"b"]] * 2]
    stage.stop()


@ways
def test_transient_message_does_not_come_back(way: Way) -> None:
    """Neither a message in memory, nor one that was spilled to the log."""
    stage, client = began(TINY)
    client.declare("q", **{"x-queue-mode": "lazy"})
    for number in range(LAZY_WINDOW + 10):
        client.publish("q", b"%d" % number, {"delivery_mode": 1})
    client.publish("q", b"kept")
    stage = way(stage)
    assert bodies_in(stage, "q") == [b"kept"]
    stage.stop()


@ways
def test_what_is_not_durable_does_not_come_back(way: Way) -> None:
    stage, client = began(TINY)
    client.declare("kept")
    client.call(2, "queue.declare", queue="passing", durable=False)
    client.call(2, "exchange.declare", exchange="passing", type="direct", durable=False)
    client.publish("passing", b"m")
    stage = way(stage)
    vhost = stage.broker.vhost("/")
    assert "kept" in vhost.queues
    assert "passing" not in vhost.queues
    assert "passing" not in vhost.exchanges
    stage.stop()


@ways
def test_deleted_queue_does_not_come_back(way: Way) -> None:
    stage, client = began(TINY)
    client.declare("kept")
    client.declare("doomed")
    client.publish("doomed", b"m")
    client.call(2, "queue.delete", queue="doomed")
    stage = way(stage)
    assert "doomed" not in stage.broker.vhost("/").queues
    stage.stop()


def test_file_goes_after_the_acks_that_emptied_it_are_on_disk() -> None:
    """Just before a file is removed, a start finds that none of its messages is needed."""
    stage, client = began(TINY)
    client.declare("q")
    for number in range(40):
        client.publish("q", b"%03d" % number * 20)
        client.get("q", no_ack=True)
    stage.sync_all()
    removals = [
        moment
        for moment, change in enumerate(stage.disk.changes)
        if change.kind == RENAME and change.to.endswith(".gone")
    ]
    assert len(removals) > 3
    for moment in removals:
        name = stage.disk.changes[moment].name
        for seed in range(5):
            survivor = stage.disk.crash(Random(seed), moment)
            file = int(name.removesuffix(".log"))
            again = StorageStage(survivor)
            assert again.found.live.get(file, 0) == 0, f"{name} was still needed"
            again.abandon()
    stage.abandon()


def test_what_a_start_has_read_is_on_disk_before_it_is_relied_on() -> None:
    """A node that was killed between a write and its sync leaves the sync to the next start."""
    stage, client = began(TINY)
    client.declare("q")
    client.declare("s", **{"x-queue-type": "stream"})
    for number in range(12):
        client.publish("q" if number % 2 else "s", b"%03d" % number * 20)
    stage.abandon()
    doubtful = [m for m in range(stage.disk.moment + 1) if WRITE in stage.disk.unsynced(m)]
    assert len(doubtful) > 10
    for moment in doubtful:
        again = StorageStage(stage.disk.killed(moment))
        again.abandon()
        for seed in range(6):
            left = again.disk.crash(Random(seed)).contents()
            for name, content in again.disk.contents().items():
                if not name.endswith(".gone") and name != SYNCED:
                    assert left[name] == content, f"moment {moment}, {name}"


def test_positions_of_full_files_lead_to_their_messages() -> None:
    """Large and small bodies over many files, found only by the indexes of these files."""
    stage, client = began(8 * TINY)
    client.declare("q")
    want = [bytes((number,)) * (number * 997 % 5000) for number in range(60)]
    for body in want:
        client.publish("q", body)
    stage = from_checkpoint(stage)
    assert stage.found.messages == len(want)
    assert bodies_in(stage, "q") == want
    stage.stop()


def test_blocks_are_numbered_without_a_gap_over_files_and_starts() -> None:
    stage, client = began(TINY)
    client.declare("q")
    seen = [stage.store.log.taken_block]
    for _ in range(3):
        for _ in range(10):
            client.publish("q", b"m" * 100)
            seen.append(stage.store.log.taken_block)
        stage = StorageStage(stage.killed(), file_bytes=TINY)
        client = Client(stage)
        assert stage.found.last_block == seen[-1]
    assert all(after == before + 1 for before, after in pairwise(seen))
    stage.stop()


@pytest.mark.parametrize("has_message", [True, False])
def test_torn_end_is_cut_off_once(has_message: bool) -> None:
    """The next start finds nothing to cut, though it may have to read the file again."""
    stage, client = began()
    client.declare("q")
    if has_message:
        client.publish("q", b"m")
    disk = stage.killed()
    (name,) = [name for name in disk.names() if name.endswith(".log")]
    disk.put(name, disk.content(name) + b"torn")
    stage = StorageStage(disk)
    assert stage.found.cut_bytes == 4
    disk = stage.killed()
    for index in [name for name in disk.names() if name.endswith(".index")]:
        disk.remove(index)
    stage = StorageStage(disk)
    assert stage.found.cut_bytes == 0
    assert bodies_in(stage, "q") == [b"m"] * has_message
    stage.stop()


@ways
def test_deepest_arguments_and_headers_fit_the_definition_the_event_and_the_trace(way: Way) -> None:
    deepest: dict[str, object] = {}
    for _ in range(NESTING_MAX):
        deepest = {"in": deepest}
    stage, client = began()
    client.declare("q", **deepest)
    client.declare("heard")
    for source in ("amq.rabbitmq.trace", "amq.rabbitmq.event"):
        client.call(2, "queue.bind", queue="heard", exchange=source, routing_key="#")
    stage.broker.vhosts["/"].set_tracing(True)
    client.call(2, "queue.bind", queue="q", exchange="amq.headers", arguments=deepest)
    client.publish("q", b"m", {"headers": deepest, "delivery_mode": 2})
    assert len(client.drain("heard")) >= 2
    stage = way(stage)
    queue = stage.broker.vhosts["/"].queues["q"]
    assert plain_table(queue.arguments) == deepest
    assert bodies_in(stage, "q") == [b"m"]


LIMITS = pytest.mark.parametrize("limit", [{"x-max-length": 2}, {"x-max-length-bytes": 2}])
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


@ways
@KINDS
@LIMITS
def test_messages_that_come_back_over_the_limit_are_dead_lettered(
    way: Way, kind: str, limit: dict[str, object]
) -> None:
    """Messages in flight do not count to a limit. At a start all of them are ready again."""
    stage, client = began(TINY)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare("dead")
    client.declare("q", **{"x-queue-type": kind}, **limit, **dead)
    for body in (b"a", b"b", b"c", b"d", b"e"):
        client.publish("q", body)
        if body < b"d":
            assert client.get("q") is not None
    stage = way(stage)
    stage.advance(0)
    assert bodies_in(stage, "q") == [b"d", b"e"]
    assert bodies_in(stage, "dead") == [b"a", b"b", b"c"]
    stage.sync_all()
    stage = StorageStage(stage.killed(), now_ms=stage.now_ms)
    stage.advance(0)
    assert bodies_in(stage, "q") == bodies_in(stage, "dead") == []
    stage.stop()


@ways
def test_messages_that_come_back_to_a_queue_that_refuses_new_ones_stay(way: Way) -> None:
    stage, client = began(TINY)
    client.declare("q", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    for body in (b"a", b"b", b"c", b"d"):
        client.publish("q", body)
        if body < b"c":
            assert client.get("q") is not None
    stage = way(stage)
    stage.advance(0)
    assert bodies_in(stage, "q") == [b"a", b"b", b"c", b"d"]
    stage.stop()


def test_a_limit_that_a_kill_interrupts_is_enforced_to_the_end() -> None:
    """A new limit drops a batch in each turn. The node dies after the first of them."""
    stage, client = began()
    client.declare("q")
    over = 20
    frames = [publish(1, "q", b"%d" % n, PERSISTENT) for n in range(BATCH + over)]
    client.peer.feed(b"".join(frames))
    client.read()
    stage.broker.begin_turn(stage.now_ms)
    limit = {"pattern": "q", "definition": {"max-length": 1}, "priority": 0}
    stage.definitions.policies.put("/", "p", limit)
    stage.end_turn()
    stage.definitions.apply_some()
    stage.end_turn()
    stage = from_log(stage)
    (queue,) = [queue for queue in stage.broker.slots.queues if queue is not None]
    assert queue.ready.count > 1
    stage.advance(0)
    assert bodies_in(stage, "q") == [b"%d" % (BATCH + over - 1)]
    stage.stop()
