"""The sums of a vhost are made in steps of limited size, and count each object once."""

from leveret.engine.insight.totals import VhostTotals
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage

QUEUES = 25


def test_each_step_adds_a_limited_number_of_objects() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=3000)
    client = Client(stage)
    for number in range(QUEUES):
        client.declare(f"q{number}")
        client.publish(f"q{number}", b"x", {})
    totals = VhostTotals(stage.broker.vhost("/"))
    seen = []
    is_left = True
    while is_left:
        is_left = totals.step(10)
        seen.append(int(totals.ready))
    assert seen[:3] == [10, 20, QUEUES]
    assert totals.total == QUEUES
    assert totals.counts.published == QUEUES
    assert not totals.step(10)
    assert totals.ready == QUEUES, "a step after the last one adds nothing"


def test_a_queue_that_is_deleted_between_two_steps_is_counted_once() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=3000)
    client = Client(stage)
    for name in ("first", "second"):
        client.declare(name)
        client.publish(name, b"x", {})
        client.get(name)
    totals = VhostTotals(stage.broker.vhost("/"))
    totals.step(1)
    for name in ("first", "second"):
        client.call(1, "queue.delete", queue=name)
    assert not stage.broker.vhost("/").queues
    while totals.step(1):
        pass
    assert totals.counts.got == 2
    after = VhostTotals(stage.broker.vhost("/"))
    while after.step(1):
        pass
    assert after.counts.got == 2
