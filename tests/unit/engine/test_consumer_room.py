"""The consumers of one user take a limited part of the memory."""

import pytest

from leveret.engine.turns.consumer_room import CONSUMER_BYTES, ConsumerRoom
from tests.protocol.stage import Event
from tests.unit.engine.front import Client, names, refusal

STREAM = {"x_queue_type": "stream"}


def room(c: Client, consumers: int) -> ConsumerRoom:
    """Limit the consumers of each user to this number."""
    found = c.stage.broker.turn.consumer_room
    found.user_bytes_max = consumers * CONSUMER_BYTES
    return found


def consume(c: Client, tag: str, *, on: int = 1) -> list[Event]:
    c.send("basic.qos", on=on, prefetch_count=10)
    return c.send("basic.consume", on=on, queue="q", consumer_tag=tag)


def test_consumers_of_a_user_are_limited_on_all_connections() -> None:
    c = Client()
    c.queue("q")
    other = c.other()
    room(c, 2)
    assert names(consume(c, "a")) == ["basic.consume-ok"]
    assert names(consume(other, "b")) == ["basic.consume-ok"]
    level, code, text = refusal(consume(c, "c", on=2))
    assert (level, code) == ("channel", 406)
    assert text.startswith("PRECONDITION_FAILED - cannot consume: the consumers of user 'guest'")
    c.send("basic.cancel", consumer_tag="a")
    assert names(consume(other, "d")) == ["basic.consume-ok"]


def test_arguments_count() -> None:
    c = Client()
    c.queue("q")
    room(c, 10)
    c.consume("q", "large", padding="x" * 10 * CONSUMER_BYTES)
    assert refusal(consume(c, "c"))[1] == 406


@pytest.mark.parametrize("arguments", [{}, STREAM], ids=["queue", "stream"])
@pytest.mark.parametrize("end", ["cancel", "channel", "delete"])
def test_room_is_given_back(end: str, arguments: dict[str, object]) -> None:
    c = Client()
    c.queue("q", **arguments)
    room(c, 3)
    for _ in range(2):
        for number in range(3):
            assert names(consume(c, f"t{number}", on=2)) == ["basic.consume-ok"]
        if end == "cancel":
            for number in range(3):
                c.send("basic.cancel", on=2, consumer_tag=f"t{number}")
        elif end == "channel":
            c.send("channel.close", on=2)
            c.peer.open_channel(2)
        else:
            c.send("queue.delete", queue="q")
            c.queue("q", **arguments)
