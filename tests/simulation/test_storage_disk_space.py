"""The disk alarm: on while free space is below the limit, off by itself."""

from leveret.storage.disk_space import IDLE_CHECK_S, RECHECK_S
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage

CAPACITY = 60_000
FREE_MIN = 30_000
FILE = 4096
BODY = b"m" * 200


def short_stage(disk: FakeDisk) -> tuple[StorageStage, Client]:
    stage = StorageStage(disk, file_bytes=FILE, free_min_bytes=FREE_MIN)
    client = Client(stage)
    client.declare("q")
    return stage, client


def publish_until_alarm(stage: StorageStage, client: Client) -> int:
    count = 0
    while not stage.alarms:
        client.publish("q", BODY)
        count += 1
        assert count < 1000
    return count


def test_alarm_comes_when_less_is_free_than_the_limit() -> None:
    stage, client = short_stage(FakeDisk(capacity_bytes=CAPACITY))
    assert stage.alarms == []
    publish_until_alarm(stage, client)
    assert FREE_MIN - 2 * FILE < stage.disk.free_bytes() < FREE_MIN
    assert set(client.confirmed.values()) == {True}  # nothing is refused: there is room
    stage.stop()


def test_alarm_ends_by_itself_when_consuming_has_freed_enough() -> None:
    stage, client = short_stage(FakeDisk(capacity_bytes=CAPACITY))
    count = publish_until_alarm(stage, client)
    assert len(client.drain("q")) == count
    stage.run_timers()
    stage.run_timers()
    assert stage.alarms == [True, False]
    assert [timer.delay_s for timer in stage.loop.waiting()] == [IDLE_CHECK_S]
    stage.stop()


def test_alarm_ends_when_somebody_else_makes_room() -> None:
    stage, client = short_stage(FakeDisk(capacity_bytes=CAPACITY))
    publish_until_alarm(stage, client)
    stage.run_timers()
    assert stage.alarms == [True]
    stage.disk.capacity_bytes = 2 * CAPACITY
    stage.run_timers()
    assert stage.alarms == [True, False]
    stage.stop()


def test_alarm_is_on_from_the_start_where_room_is_short() -> None:
    stage, client = short_stage(FakeDisk(capacity_bytes=FREE_MIN - 1))
    assert stage.alarms == [True]
    client.publish("q", BODY)
    assert [message.body for message in client.drain("q")] == [BODY]
    stage.stop()


def test_node_that_writes_nothing_notices_a_disk_that_others_fill() -> None:
    stage, _ = short_stage(FakeDisk(capacity_bytes=CAPACITY))
    assert [timer.delay_s for timer in stage.loop.waiting()] == [IDLE_CHECK_S]
    stage.disk.capacity_bytes = FREE_MIN
    stage.run_timers()
    assert stage.alarms == [True]
    assert [timer.delay_s for timer in stage.loop.waiting()] == [RECHECK_S]
    stage.stop()
