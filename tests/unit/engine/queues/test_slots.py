"""A slot leads to its own queue as long as anything refers to it."""

from tests.unit.engine.front import Client, got


def test_the_slot_of_a_deleted_queue_is_used_again() -> None:
    client = Client()
    slots = client.stage.broker.slots
    for number in range(50):
        client.queue(f"q{number}")
        client.send("queue.delete", queue=f"q{number}")
    assert len(slots.queues) == 1


def test_a_slot_waits_until_nothing_of_its_queue_is_in_flight() -> None:
    client = Client()
    slots = client.stage.broker.slots
    old = client.queue("old")
    client.publish("old", "a", "b")
    client.consume("old", "t")
    client.send("queue.delete", queue="old")
    new = client.queue("new")
    assert new.slot != old.slot
    client.publish("new", "c")
    client.consume("new", "u")
    client.nack(1)  # of the deleted queue: nothing comes of it
    assert slots.queue(old.slot) is old
    client.ack(2)
    assert slots.queues[old.slot] is None
    assert got(client.nack(3)) == ["u:c!"]
    assert client.queue("third").slot == old.slot
