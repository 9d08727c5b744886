"""The work of one turn is limited, and connections with much work go on one at a time.

The tests count commands and turns. They measure no time.
"""

from __future__ import annotations

import asyncio

import pytest

from leveret.amqp.channel import Channel
from leveret.amqp.sockets import QUOTA_BYTES
from leveret.engine.commands.consuming import CONSUMERS_PER_COPY
from leveret.engine.commands.settling import SETTLED_MAX
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.turn import WORK_MAX
from leveret.errors import PreconditionFailedError
from tests.compat.client import Method, is_method
from tests.protocol.stage import Peer, Stage, closes, method, publish
from tests.protocol.test_flow import Line, opened, opened_on, receive

CONSUMERS = 2_000
FLOODING = 10
ITERATIONS_MAX = 10_000
QUESTION = method(1, "queue.declare", queue="q", passive=True)
FLOOD = QUESTION * (QUOTA_BYTES // len(QUESTION))
HELD = SETTLED_MAX + 500


def answers_by_turn(peer: Peer, data: bytes) -> list[int]:
    """Send bytes as one read. Return the number of answers of each turn that it takes."""
    connection = peer.connection
    broker = peer.stage.broker
    broker.begin_turn(peer.stage.now_ms)
    connection.feed(data)
    peer.stage.end_turn()
    found = [len(peer.take())]
    while connection.has_rest:
        broker.begin_turn(peer.stage.now_ms)
        connection.go_on()
        peer.stage.end_turn()
        found.append(len(peer.take()))
    return found


def peer_with_channel() -> Peer:
    peer = Stage().opened()
    peer.open_channel(1)
    peer.send(1, "queue.declare", queue="q")
    return peer


@pytest.mark.parametrize(
    ("frames", "most"),
    [
        ([method(1, "queue.declare", queue="q", passive=True)], 300),
        ([method(1, "queue.declare", queue="")], 300),
        ([method(1, "queue.purge", queue="q")], 300),
        (
            [
                method(1, "exchange.declare", exchange="e", type="topic"),
                method(1, "exchange.delete", exchange="e"),
            ],
            300,
        ),
        ([method(1, "basic.get", queue="q")], 3_000),
        ([method(1, "channel.flow", active=True)], 3_000),
        ([method(2, "channel.open"), method(2, "channel.close")], 5_500),
    ],
)
def test_flood_of_methods_is_answered_in_several_turns(frames: list[bytes], most: int) -> None:
    peer = peer_with_channel()
    count = 2 * most // len(frames)
    answers = answers_by_turn(peer, b"".join(frames) * count)
    assert sum(answers) == count * len(frames)
    assert max(answers) <= most


def test_change_of_the_prefetch_limit_counts_the_consumers_that_it_wakes() -> None:
    peer = peer_with_channel()
    for number in range(CONSUMERS):
        peer.feed(method(1, "basic.consume", queue="q", consumer_tag=f"{number}"))
    peer.take()
    answers = answers_by_turn(peer, method(1, "basic.qos", prefetch_count=1) * 1_000)
    assert sum(answers) == 1_000
    assert max(answers) * CONSUMERS <= 100 * WORK_MAX


@pytest.mark.parametrize("deleted", ["queue", "exchange"])
def test_deletion_counts_the_bindings_that_it_removes(deleted: str) -> None:
    peer = peer_with_channel()
    for number in range(4):
        peer.feed(method(1, "queue.declare", queue=f"q{number}"))
        peer.feed(method(1, "exchange.declare", exchange=f"e{number}", type="direct"))
        for key in range(WORK_MAX // 4):
            fields = {"queue": f"q{number}", "exchange": f"e{number}", "routing_key": f"{key}"}
            peer.feed(method(1, "queue.bind", **fields))
    peer.take()
    frames = {
        "queue": [method(1, "queue.delete", queue=f"q{number}") for number in range(4)],
        "exchange": [method(1, "exchange.delete", exchange=f"e{number}") for number in range(4)],
    }
    answers = answers_by_turn(peer, b"".join(frames[deleted] * 2))
    assert sum(answers) == 8
    assert max(answers) == 4


@pytest.mark.interpreted_only("compiled code cannot be patched")
def test_unbind_does_not_look_at_the_other_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = peer_with_channel()
    names = {"queue": "q", "exchange": "amq.direct"}
    for key in ("a", "b"):
        peer.feed(method(1, "queue.bind", **names, routing_key=key))
    peer.take()
    monkeypatch.delattr(Exchange, "bindings_to")
    for key in ("a", "b"):
        peer.feed(method(1, "queue.unbind", **names, routing_key=key))
    assert [is_method(event, "queue.unbind-ok") for event in peer.take()] == [True, True]


@pytest.mark.interpreted_only("compiled code cannot be patched")
def test_a_connection_that_ends_removes_its_consumers_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass for each of its channels would look at all consumers of the queue each time."""
    peer = peer_with_channel()
    queue = peer.stage.broker.vhost("/").queues["q"]
    for channel in (2, 3, 4):
        peer.open_channel(channel)
        peer.send(channel, "basic.consume", queue="q", consumer_tag="t")
    assert len(queue.consumers) == 3
    monkeypatch.delattr(Queue, "remove_consumer")
    peer.send(0, "connection.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    assert queue.consumers == []


def test_channels_that_close_share_the_turn_by_the_consumers_of_their_queues() -> None:
    peer = peer_with_channel()
    for channel in range(2, 12):
        peer.open_channel(channel)
        peer.send(channel, "basic.consume", queue="q", consumer_tag="t")
    for number in range(CONSUMERS):
        peer.feed(method(1, "basic.consume", queue="q", consumer_tag=f"{number}"))
    peer.take()
    fields = {"reply_code": 200, "reply_text": "", "class_id": 0, "method_id": 0}
    peer.stage.broker.begin_turn(peer.stage.now_ms)
    peer.connection.feed(b"".join(method(n, "channel.close", **fields) for n in range(2, 12)))
    assert peer.stage.broker.turn.work >= 10 * CONSUMERS // CONSUMERS_PER_COPY
    peer.stage.end_turn()


async def read_from_again(*lines: Line) -> None:
    """Wait until the broker reads from all of these connections."""
    for _ in range(ITERATIONS_MAX):
        if all(line.calls[-1] == "resume" for line in lines):
            return
        await asyncio.sleep(0)
    raise AssertionError("a connection is paused for ever")


def test_connections_with_much_work_go_on_one_at_a_time() -> None:
    """A client with little to do must not wait for a turn of every client that floods."""

    async def flood() -> None:
        loop = asyncio.get_running_loop()
        first_line, first = opened(loop)
        flooding = [(first_line, first)]
        flooding += [opened_on(first) for _ in range(FLOODING - 1)]
        broker = first.connection.front.broker
        receive(first, method(1, "queue.declare", queue="q"))
        for _, protocol in flooding:
            receive(protocol, FLOOD)
        turns = []
        while any(protocol.connection.has_rest for _, protocol in flooding):
            before = broker.turn.number
            await asyncio.sleep(0)
            turns.append(broker.turn.number - before)
        assert max(turns) <= 1
        await read_from_again(*(line for line, _ in flooding))

    asyncio.run(flood())


def test_connection_that_is_lost_while_it_waits_is_forgotten() -> None:
    async def lose() -> None:
        _, first = opened(asyncio.get_running_loop())
        line, second = opened_on(first)
        receive(first, method(1, "queue.declare", queue="q"))
        for protocol in (first, second):
            receive(protocol, FLOOD)
        await asyncio.sleep(0)
        first.connection_lost(None)
        await read_from_again(line)
        assert not second.connection.has_rest

    asyncio.run(lose())


def test_publisher_with_much_work_is_read_from_again() -> None:
    async def flood() -> None:
        line, protocol = opened(asyncio.get_running_loop())
        receive(protocol, b"".join(_fanout(40)))
        await read_from_again(line)
        line.calls.clear()
        receive(protocol, publish(1, "", b"x", exchange="amq.fanout") * 40)
        assert line.calls == ["pause"]
        await read_from_again(line)
        queues = protocol.connection.front.broker.vhost("/").queues
        assert {queue.ready.count for queue in queues.values()} == {40}

    asyncio.run(flood())


def _fanout(queues: int) -> list[bytes]:
    return [
        method(1, "queue.declare", queue=f"q{number}")
        + method(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout")
        for number in range(queues)
    ]


def peer_that_holds(count: int) -> Peer:
    """Return a peer with so many unacked messages of the queue q."""
    peer = peer_with_channel()
    peer.feed(method(1, "basic.consume", queue="q", consumer_tag="t"))
    one = publish(1, "q", b"")
    for done in range(0, count, 1_000):
        peer.feed(one * min(1_000, count - done))
        peer.take_bytes()
    assert channel_of(peer).unacked.count == count
    return peer


def channel_of(peer: Peer) -> Channel:
    return peer.connection.channels[1]


def turn(peer: Peer, data: bytes = b"") -> None:
    """Run one turn: receive bytes, or go on with earlier ones."""
    peer.stage.broker.begin_turn(peer.stage.now_ms)
    if data:
        peer.connection.feed(data)
    else:
        peer.connection.go_on()
    peer.stage.end_turn()


@pytest.mark.parametrize("tag", [0, HELD - 100])
@pytest.mark.parametrize(
    "settlement",
    [("basic.ack", {"multiple": True}), ("basic.nack", {"multiple": True, "requeue": False})],
)
def test_settlement_of_many_messages_takes_several_turns(
    settlement: tuple[str, dict[str, object]], tag: int
) -> None:
    name, fields = settlement
    peer = peer_that_holds(HELD)
    unacked = channel_of(peer).unacked
    turn(peer, method(1, name, delivery_tag=tag, **fields) + QUESTION)
    assert peer.connection.has_rest
    assert unacked.count == HELD - SETTLED_MAX
    assert not peer.take()
    peer.feed(publish(1, "q", b"later"))  # of a later read: its delivery is not settled
    left = 1 if tag == 0 else 101
    assert unacked.count == left
    assert peer.names()[0] == "queue.declare-ok"
    queue = peer.stage.broker.vhost("/").queues["q"]
    assert (queue.ready.count, queue.unacked) == (0, left)


def test_settlement_of_all_messages_leaves_deliveries_of_later_turns() -> None:
    peer = peer_that_holds(HELD)
    other = peer.stage.opened()
    other.open_channel(1)
    turn(peer, method(1, "basic.ack", delivery_tag=0, multiple=True))
    other.feed(publish(1, "q", b"later"))
    (delivery,) = peer.take()
    assert isinstance(delivery, Method) and delivery.body == b"later"
    while peer.connection.has_rest:
        turn(peer)
    assert channel_of(peer).unacked.last_tag() == delivery.tag
    assert channel_of(peer).unacked.count == 1


def test_unknown_tag_of_many_messages_settles_nothing() -> None:
    peer = peer_that_holds(SETTLED_MAX + 1)
    peer.feed(method(1, "basic.ack", delivery_tag=SETTLED_MAX + 2, multiple=True))
    assert closes(peer.take()) == [
        ("channel", 406, f"PRECONDITION_FAILED - unknown delivery tag {SETTLED_MAX + 2}")
    ]
    assert peer.stage.broker.vhost("/").queues["q"].ready.count == SETTLED_MAX + 1


def test_connection_lost_between_two_parts_gives_the_rest_back() -> None:
    peer = peer_that_holds(HELD)
    turn(peer, method(1, "basic.ack", delivery_tag=0, multiple=True))
    peer.lose()
    assert peer.stage.broker.vhost("/").queues["q"].ready.count == HELD - SETTLED_MAX


def test_channel_closed_between_two_parts_gives_the_rest_back_and_frames_go_on() -> None:
    peer = peer_that_holds(HELD)
    peer.open_channel(2)
    turn(
        peer,
        method(1, "basic.ack", delivery_tag=0, multiple=True)
        + method(2, "queue.declare", queue="q", passive=True),
    )
    peer.connection.fail_channel(1, PreconditionFailedError("test"))
    turn(peer)
    answer = next(e for e in peer.take() if isinstance(e, Method) and e.channel == 2)
    assert answer.fields["message_count"] == HELD - SETTLED_MAX


def test_old_deliveries_that_a_multiple_ack_looks_at_count_as_work() -> None:
    """A low tag settles one message, but looks at every old delivery that is still held."""
    peer = peer_that_holds(SETTLED_MAX)
    kept = range(1, SETTLED_MAX, 16)
    held = set(kept)
    acks = [method(1, "basic.ack", delivery_tag=t) for t in range(1, SETTLED_MAX) if t not in held]
    peer.feed(b"".join(acks))
    for _ in range(SETTLED_MAX):  # thinning follows new deliveries
        if channel_of(peer).unacked.stragglers:
            break
        peer.feed(publish(1, "q", b"") * 100)
        last = channel_of(peer).unacked.last_tag()
        peer.feed(b"".join(method(1, "basic.ack", delivery_tag=last - n) for n in range(100)))
    old = len(channel_of(peer).unacked.stragglers)
    assert old >= 500
    peer.stage.broker.begin_turn(peer.stage.now_ms)
    peer.connection.feed(method(1, "basic.ack", delivery_tag=1, multiple=True))
    assert peer.stage.broker.turn.work >= old // 50
    peer.stage.end_turn()
