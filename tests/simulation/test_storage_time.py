"""The order of delayed messages after a restart."""

from leveret.storage.log_reader import PAGE_MESSAGES
from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.protocol.stage import publish
from tests.simulation.storage_stage import PERSISTENT, Client, StorageStage, bodies_in

DELAYED: dict[str, object] = {"x-delayed": True}


def after(delay_ms: int) -> dict[str, object]:
    return {"delivery_mode": 2, "headers": {"x-delay": delay_ms}}


def killed_for(stage: StorageStage, ms: int = 0) -> StorageStage:
    """Kill the broker, and start it `ms` later."""
    stage.sync_all()
    return StorageStage(stage.killed(), now_ms=stage.now_ms + ms)


def take(client: Client, name: str) -> Method:
    message = client.get(name)
    assert message is not None
    return message


def test_message_that_was_due_before_the_restart_keeps_its_place() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q", **DELAYED)
    client.publish("q", b"delayed", after(1000))
    client.publish("q", b"before it was due")
    stage.advance(2000)
    client.publish("q", b"after it was due")
    stage = killed_for(stage)
    assert bodies_in(stage, "q") == [b"before it was due", b"delayed", b"after it was due"]
    stage.stop()


def test_messages_that_become_due_meanwhile_come_by_their_time_behind_what_was_there() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q", **DELAYED)
    client.publish("q", b"third", after(3000))
    client.publish("q", b"second", after(2000))
    client.publish("q", b"later", after(60_000))
    client.publish("q", b"first")
    stage = killed_for(stage, 10_000)
    stage.advance(0)
    Client(stage).publish("q", b"new")
    assert bodies_in(stage, "q") == [b"first", b"second", b"third", b"new"]
    stage.advance(60_000)
    assert bodies_in(stage, "q") == [b"later"]
    stage.stop()


def test_message_that_was_due_is_not_delivered_twice_or_lost_by_a_kill_at_any_moment() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q", **DELAYED)
    client.publish("q", b"delayed", after(1000))
    stage.sync_all()
    first = stage.disk.moment
    stage.advance(2000)
    client.publish("q", b"after")
    stage.sync_all()
    stage.abandon()
    for moment in range(first, stage.disk.moment + 1):
        again = StorageStage(stage.disk.killed(moment), now_ms=stage.now_ms)
        again.advance(0)
        found = bodies_in(again, "q")
        assert found in ([b"delayed"], [b"delayed", b"after"]), moment
        again.abandon()


def test_message_that_came_back_and_has_waited_is_in_its_place_again() -> None:
    """Further back than a queue reads at once."""
    retry = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000}
    count = 2 * PAGE_MESSAGES
    late = count - 10
    bodies = [b"%d" % number for number in range(count)]
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q", **retry)
    client.peer.feed(b"".join(publish(1, "q", body, PERSISTENT) for body in bodies))
    client.call(3, "basic.consume", queue="q", consumer_tag="c")
    assert len(client.deliveries) == count
    client.call(3, "basic.nack", delivery_tag=late, requeue=True)
    stage = killed_for(stage, 5000)
    stage.advance(0)
    assert bodies_in(stage, "q") == bodies
    stage.stop()


def test_message_that_was_due_says_after_a_clean_end_that_it_was_never_delivered() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q", **DELAYED)
    client.publish("q", b"delayed", after(1000))
    client.publish("q", b"other")
    client.call(3, "basic.ack", delivery_tag=take(client, "q").fields["delivery_tag"])
    stage.advance(2000)
    stage = StorageStage(stage.stop(), now_ms=stage.now_ms)
    message = take(Client(stage), "q")
    assert (message.body, message.fields["redelivered"]) == (b"delayed", False)
    stage.stop()


def oldest_age_ms(stage: StorageStage, name: str = "q") -> int:
    return stage.now_ms - int(stage.broker.vhost("/").queues[name].oldest_ready_ms())


def test_messages_are_as_old_after_a_kill_as_before_it() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    for wait_ms in (30_000, 600_000, 3_600_000):
        client.publish("q", b"message", PERSISTENT)
        stage.advance(wait_ms)
    before_ms = oldest_age_ms(stage)
    stage = killed_for(stage, 5000)
    assert oldest_age_ms(stage) == before_ms + 5000
    client = Client(stage)
    client.call(3, "basic.ack", delivery_tag=take(client, "q").fields["delivery_tag"])
    assert oldest_age_ms(stage) == 3_600_000 + 600_000 + 5000
    # The next start reads the old messages from the checkpoint of this one.
    stage = killed_for(stage, 1000)
    assert oldest_age_ms(stage) == 3_600_000 + 600_000 + 6000
    stage.stop()
