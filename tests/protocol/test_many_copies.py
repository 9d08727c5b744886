"""Messages with many copies over a socket: they are made in portions, and none is lost."""

from typing import cast

from leveret.engine.turns.turn import WORK_MAX
from leveret.testing.broker import broker
from tests.compat.client import Channel, Method, connect
from tests.protocol.stage import publish

QUEUES = 200
PUBLISHES = 4 * WORK_MAX // QUEUES
DEATHS = 10 * QUEUES


def declare_fanout(channel: Channel, **arguments: object) -> None:
    channel.call("exchange.declare", exchange="f", type="fanout")
    for number in range(QUEUES):
        channel.call("queue.declare", queue=f"q{number}", arguments=arguments)
        channel.call("queue.bind", queue=f"q{number}", exchange="f")


def count_of(channel: Channel, queue: str) -> int:
    answer = cast(Method, channel.call("queue.declare", queue=queue, passive=True))
    return cast(int, answer.fields["message_count"])


def test_publishes_of_one_read_are_carried_out_in_several_turns() -> None:
    with broker() as server:
        channel = connect(server.host, server.port).channel()
        declare_fanout(channel)
        channel.call("confirm.select")
        before = server.node.broker.turn.number
        data = b"".join(publish(1, "", b"x", exchange="f") for _ in range(PUBLISHES))
        channel.connection.send_bytes(data)
        confirmed = 0
        while confirmed < PUBLISHES:
            event = channel.next()
            assert isinstance(event, Method) and event.name == "basic.ack"
            confirmed = event.tag
        assert server.node.broker.turn.number - before >= 4
        assert {count_of(channel, f"q{number}") for number in range(QUEUES)} == {PUBLISHES}
        channel.connection.close()


def test_deaths_that_wait_for_another_turn_are_carried_out_without_further_input() -> None:
    with broker() as server:
        channel = connect(server.host, server.port).channel()
        channel.call("exchange.declare", exchange="dead", type="fanout")
        channel.call("queue.declare", queue="dead")
        channel.call("queue.bind", queue="dead", exchange="dead")
        declare_fanout(channel, **{"x-dead-letter-exchange": "dead", "x-max-length": 0})
        channel.call("basic.consume", queue="dead", no_ack=True)
        data = b"".join(publish(1, "", b"x", exchange="f") for _ in range(DEATHS // QUEUES))
        channel.connection.send_bytes(data)
        for _ in range(DEATHS):
            event = channel.next()
            assert isinstance(event, Method) and event.name == "basic.deliver"
        channel.connection.drop()
