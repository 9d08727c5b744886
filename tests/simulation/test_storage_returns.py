"""Messages that come back to a queue do not stay in memory if the log holds them."""

import random
from collections.abc import Iterator

import pytest

from leveret.engine.backlog.ready import WINDOW
from leveret.engine.insight.filters import Filter
from leveret.engine.insight.walk import Walk
from leveret.engine.queues.queue import Queue
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

WINDOW_USED = 4
COUNT = 60


CLASSIC: dict[str, object] = {}
LIMITED: dict[str, object] = {"x-delivery-limit": 2}
QUORUM: dict[str, object] = {"x-queue-type": "quorum", "x-delivery-limit": -1}
PRIORITY: dict[str, object] = {"x-max-priority": 3}
KINDS = {"classic": CLASSIC, "limited": LIMITED, "quorum": QUORUM, "priority": PRIORITY}


@pytest.fixture(params=KINDS)
def arguments(request: pytest.FixtureRequest) -> dict[str, object]:
    """The arguments of a queue of each kind."""
    return KINDS[str(request.param)]


def holding(
    arguments: dict[str, object], window: int = WINDOW_USED
) -> tuple[StorageStage, Client, Queue]:
    """Return a client that holds all messages of a queue on channels 2 and 3, in turn."""
    stage = StorageStage(FakeDisk(), window=window)
    client = Client(stage)
    client.declare("q", **arguments)
    for channel in (2, 3):
        client.call(channel, "basic.consume", queue="q", consumer_tag=f"t{channel}")
    for number in range(COUNT):
        client.publish("q", b"%03d" % number + b"x" * 1000)
    queue = stage.broker.vhost("/").queues["q"]
    assert queue.unacked == COUNT
    return stage, client, queue


def end_consumers(client: Client) -> None:
    for channel in (2, 3):
        client.call(channel, "basic.cancel", consumer_tag=f"t{channel}")


def give_all_back(client: Client) -> None:
    """Close both channels and open them again, after no consumer is left."""
    end_consumers(client)
    for channel in (2, 3):
        client.call(channel, "channel.close")
        client.peer.open_channel(channel)


def give_back_one_by_one(client: Client, rng: random.Random) -> Iterator[None]:
    """Requeue all messages in random order, after no consumer is left. Yield after each."""
    held = [message.fields for message in client.deliveries]
    tags = [(int(str(fields["consumer_tag"])[1:]), fields["delivery_tag"]) for fields in held]
    end_consumers(client)
    rng.shuffle(tags)
    for channel, tag in tags:
        client.call(channel, "basic.nack", delivery_tag=tag, requeue=True)
        yield


def in_memory(queue: Queue) -> int:
    return len(queue.ready.messages())


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(body[:3]) for body in bodies]


def test_returned_messages_are_paged_out_and_keep_their_order(
    arguments: dict[str, object],
) -> None:
    stage, client, queue = holding(arguments)
    give_all_back(client)
    assert queue.ready.count == COUNT
    assert in_memory(queue) <= 2 * WINDOW_USED
    found = Client(stage).drain("q")
    order = numbers([message.body for message in found])
    if arguments is QUORUM:  # it serves first what came back first, a window at a time
        assert set(order[: COUNT // 2 - WINDOW_USED]) < set(range(0, COUNT, 2))
        order.sort()
    assert order == list(range(COUNT))
    assert all(message.fields["redelivered"] for message in found)
    assert (queue.ready.count, queue.ready.body_bytes) == (0, 0)
    assert sum(stage.store.journal.live.values()) == 0
    stage.stop()


@pytest.mark.parametrize("arguments", [CLASSIC, PRIORITY], ids=["classic", "priority"])
def test_messages_that_return_one_by_one_in_any_order_keep_their_place(
    arguments: dict[str, object], seed: int
) -> None:
    rng = random.Random(seed)
    stage, client, queue = holding(arguments)
    for _ in give_back_one_by_one(client, rng):
        if rng.random() < 0.1:
            client.publish("q", b"%03d" % (COUNT + client.published) + b"y")
    assert in_memory(queue) <= 3 * WINDOW_USED
    found = numbers(bodies_in(stage, "q"))
    assert found[:COUNT] == list(range(COUNT)), f"seed {seed}"
    assert found == sorted(found)
    stage.stop()


def test_messages_that_return_to_a_quorum_queue_one_by_one_are_served_once(seed: int) -> None:
    stage, client, queue = holding(QUORUM)
    for _ in give_back_one_by_one(client, random.Random(seed)):
        pass
    assert in_memory(queue) <= 2 * WINDOW_USED
    assert sorted(numbers(bodies_in(stage, "q"))) == list(range(COUNT)), f"seed {seed}"
    assert sum(stage.store.journal.live.values()) == 0
    stage.stop()


def test_messages_that_return_to_fair_lines_are_paged_out_and_keep_their_order() -> None:
    stage = StorageStage(FakeDisk(), window=WINDOW_USED)
    client = Client(stage)
    client.declare("q", **PRIORITY)
    queue = stage.broker.vhost("/").queues["q"]
    queue.ready.open_fair_lines()
    client.call(2, "basic.consume", queue="q", consumer_tag="t2")
    for number in range(COUNT):
        headers = {"x-job-fair-key": "ab"[number % 2]}
        client.publish("q", b"%03d" % number, {"delivery_mode": 2, "headers": headers})
    client.call(2, "basic.cancel", consumer_tag="t2")
    client.call(2, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    assert queue.ready.count == COUNT
    assert in_memory(queue) <= 4 * WINDOW_USED
    found = numbers(bodies_in(stage, "q"))
    for first in (0, 1):
        assert [n for n in found if n % 2 == first] == list(range(first, COUNT, 2))
    assert len({n % 2 for n in found[:2]}) == 2  # the keys take turns
    assert queue.ready.count == 0
    stage.stop()


def test_a_walk_in_slices_finds_each_paged_return_once(arguments: dict[str, object]) -> None:
    stage, client, queue = holding(arguments)
    give_all_back(client)
    walk = Walk(queue, stage.broker.vhost("/").stuck, Filter(), [])
    while not walk.is_done():
        walk.step(7, COUNT + 1, 1 << 30)
    found = [one.message.body for one in walk.take()]
    assert sorted(numbers(found)) == list(range(COUNT))
    stage.stop()


def test_returned_messages_survive_a_kill_and_are_not_there_after_their_acks(
    arguments: dict[str, object],
) -> None:
    stage, client, _ = holding(arguments)
    give_all_back(client)
    reader = Client(stage)
    acked: list[int] = []
    for _ in range(10):
        message = reader.get("q")
        assert message is not None
        acked.append(int(message.body[:3]))
        reader.call(3, "basic.ack", delivery_tag=message.fields["delivery_tag"])
    stage.sync_all()
    stage = StorageStage(stage.killed(), now_ms=stage.now_ms)
    left = [number for number in range(COUNT) if number not in acked]
    assert sorted(numbers(bodies_in(stage, "q"))) == left
    stage.stop()


@pytest.mark.parametrize("kind", [CLASSIC, QUORUM, PRIORITY], ids=["classic", "quorum", "priority"])
@pytest.mark.parametrize("limit", [None, 2])
def test_returned_messages_keep_their_counts(limit: int | None, kind: dict[str, object]) -> None:
    stage, client, queue = holding(kind if limit is None else {**kind, "x-delivery-limit": limit})
    for _ in range(2):
        give_all_back(client)
        assert queue.ready.count == COUNT
        for channel in (2, 3):
            client.call(channel, "basic.consume", queue="q", consumer_tag=f"t{channel}")
        assert queue.unacked == COUNT
    give_all_back(client)
    assert queue.ready.count == (COUNT if limit is None else 0)
    stage.stop()


def test_a_purge_and_a_deletion_free_paged_returns(arguments: dict[str, object]) -> None:
    for name in ("queue.purge", "queue.delete"):
        stage, client, _ = holding(arguments)
        give_all_back(client)
        (answer,) = client.call(2, name, queue="q")
        assert answer.fields["message_count"] == COUNT
        assert sum(stage.store.journal.live.values()) == 0
        stage.stop()


def test_a_usual_window_is_large_enough_for_usual_prefetches() -> None:
    stage, client, queue = holding(CLASSIC, window=WINDOW)
    give_all_back(client)
    assert (in_memory(queue), queue.ready.line.paged_returns) == (COUNT, None)
    stage.stop()
