"""Messages that come back to a queue do not stay in memory if the log holds them."""

import random

import pytest

from leveret.engine.backlog.ready import WINDOW
from leveret.engine.queues.queue import Queue
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

WINDOW_USED = 4
COUNT = 60


def holding(
    window: int = WINDOW_USED, limit: int | None = None
) -> tuple[StorageStage, Client, Queue]:
    """Return a client that holds all messages of a queue on channels 2 and 3, in turn."""
    stage = StorageStage(FakeDisk(), window=window)
    client = Client(stage)
    client.declare("q", **({} if limit is None else {"x-delivery-limit": limit}))
    for channel in (2, 3):
        client.call(channel, "basic.consume", queue="q", consumer_tag=f"t{channel}")
    for number in range(COUNT):
        client.publish("q", b"%03d" % number + b"x" * 1000)
    queue = stage.broker.vhost("/").queues["q"]
    assert queue.unacked == COUNT
    return stage, client, queue


def give_all_back(client: Client) -> None:
    """Close both channels and open them again, after no consumer is left."""
    for channel in (2, 3):
        client.call(channel, "basic.cancel", consumer_tag=f"t{channel}")
    for channel in (2, 3):
        client.call(channel, "channel.close")
        client.peer.open_channel(channel)


def in_memory(queue: Queue) -> int:
    return len(queue.ready.messages())


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(body[:3]) for body in bodies]


def test_returned_messages_are_paged_out_and_keep_their_order() -> None:
    stage, client, queue = holding()
    give_all_back(client)
    assert queue.ready.count == COUNT
    assert in_memory(queue) <= 2 * WINDOW_USED
    found = Client(stage).drain("q")
    assert numbers([message.body for message in found]) == list(range(COUNT))
    assert all(message.fields["redelivered"] for message in found)
    assert (queue.ready.count, queue.ready.body_bytes) == (0, 0)
    assert sum(stage.store.journal.live.values()) == 0
    stage.stop()


def test_messages_that_return_one_by_one_in_any_order_keep_their_place(seed: int) -> None:
    rng = random.Random(seed)
    stage, client, queue = holding()
    held = [message.fields for message in client.deliveries]
    tags = [(int(str(fields["consumer_tag"])[1:]), fields["delivery_tag"]) for fields in held]
    for channel in (2, 3):
        client.call(channel, "basic.cancel", consumer_tag=f"t{channel}")
    rng.shuffle(tags)
    for channel, tag in tags:
        client.call(channel, "basic.nack", delivery_tag=tag, requeue=True)
        if rng.random() < 0.1:
            client.publish("q", b"%03d" % (COUNT + client.published) + b"y")
    assert in_memory(queue) <= 3 * WINDOW_USED
    found = numbers(bodies_in(stage, "q"))
    assert found[:COUNT] == list(range(COUNT)), f"seed {seed}"
    assert found == sorted(found)
    stage.stop()


def test_returned_messages_survive_a_kill_and_are_not_there_after_their_acks() -> None:
    stage, client, _ = holding()
    give_all_back(client)
    reader = Client(stage)
    for _ in range(10):
        message = reader.get("q")
        assert message is not None
        reader.call(3, "basic.ack", delivery_tag=message.fields["delivery_tag"])
    stage.sync_all()
    stage = StorageStage(stage.killed(), now_ms=stage.now_ms)
    assert numbers(bodies_in(stage, "q")) == list(range(10, COUNT))
    stage.stop()


@pytest.mark.parametrize("limit", [None, 2])
def test_returned_messages_keep_their_counts(limit: int | None) -> None:
    stage, client, queue = holding(limit=limit)
    for _ in range(2):
        give_all_back(client)
        assert queue.ready.count == COUNT
        for channel in (2, 3):
            client.call(channel, "basic.consume", queue="q", consumer_tag=f"t{channel}")
        assert queue.unacked == COUNT
    give_all_back(client)
    assert queue.ready.count == (COUNT if limit is None else 0)
    stage.stop()


def test_a_purge_and_a_deletion_free_paged_returns() -> None:
    for name in ("queue.purge", "queue.delete"):
        stage, client, _ = holding()
        give_all_back(client)
        (answer,) = client.call(2, name, queue="q")
        assert answer.fields["message_count"] == COUNT
        assert sum(stage.store.journal.live.values()) == 0
        stage.stop()


def test_a_usual_window_is_large_enough_for_usual_prefetches() -> None:
    stage, client, queue = holding(window=WINDOW)
    give_all_back(client)
    assert (in_memory(queue), queue.ready.paged_returns) == (COUNT, [])
    stage.stop()
