"""The routing of one message is limited: few bytes must not keep the broker from other clients."""

from __future__ import annotations

from random import Random

import pytest

from leveret.engine.commands.publishing import LOOKS_PER_COPY
from leveret.engine.exchanges.exchange import ROUTING_STEPS_MAX
from tests.protocol.stage import Peer, Stage, closes, method, publish

QUEUES = 120
KEYS = [f"{number}" for number in range(ROUTING_STEPS_MAX // QUEUES + 1)]
REFUSAL = (
    f"PRECONDITION_FAILED - the routing of the message takes over {ROUTING_STEPS_MAX} steps: it "
    "has too many routing keys or headers for the bindings of its exchanges"
)


def peer_with_queues(exchange: str) -> Peer:
    """Return a peer whose queues are all bound to an exchange."""
    peer = Stage().opened()
    peer.open_channel(1)
    if not exchange.startswith("amq."):
        arguments = {"x-delayed-type": "topic"}
        kind = "x-delayed-message"
        peer.send(1, "exchange.declare", exchange=exchange, type=kind, arguments=arguments)
    for number in range(QUEUES):
        peer.feed(method(1, "queue.declare", queue=f"q{number}"))
        peer.feed(method(1, "queue.bind", queue=f"q{number}", exchange=exchange, routing_key="#"))
    peer.take()
    return peer


def ready(peer: Peer, name: str) -> int:
    return int(peer.stage.broker.vhost("/").queues[name].ready.count)


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("exchange", ["amq.topic", "delayed"])
def test_message_with_too_many_keys_is_refused_and_reaches_no_queue(
    header: str, exchange: str
) -> None:
    peer = peer_with_queues(exchange)
    peer.feed(publish(1, "k", b"x", {"headers": {header: KEYS}}, exchange=exchange))
    assert closes(peer.take()) == [("channel", 406, REFUSAL)]
    assert ready(peer, "q0") == 0
    peer.feed(method(1, "channel.close-ok"))
    peer.open_channel(1)
    peer.feed(publish(1, "k", b"x", {"headers": {header: KEYS[:10]}}, exchange=exchange))
    assert not closes(peer.take())
    assert ready(peer, "q0") == 1


def test_key_that_many_patterns_nearly_match_is_refused() -> None:
    rng = Random(1)
    peer = Stage().opened()
    peer.open_channel(1)
    peer.send(1, "queue.declare", queue="q")
    for _ in range(300):
        pattern = ".".join(f"#.{rng.choice('ab')}" for _ in range(60)) + ".c"
        peer.feed(method(1, "queue.bind", queue="q", exchange="amq.topic", routing_key=pattern))
    peer.take()
    key = ".".join(rng.choice("ab") for _ in range(127))
    peer.feed(publish(1, key, b"x", exchange="amq.topic"))
    assert closes(peer.take()) == [("channel", 406, REFUSAL)]


def test_dead_letter_with_too_many_keys_is_parked_with_the_reason() -> None:
    peer = peer_with_queues("amq.topic")
    arguments = {"x-dead-letter-exchange": "amq.topic", "x-message-ttl": 1}
    peer.send(1, "queue.declare", queue="first", arguments=arguments)
    peer.feed(publish(1, "first", b"x", {"headers": {"CC": KEYS}}))
    peer.stage.advance(10)
    assert not closes(peer.take())
    assert (ready(peer, "first"), ready(peer, "q0")) == (0, 0)
    assert ready(peer, "leveret.parked") == 1


def test_routing_of_new_keys_counts_as_work_of_the_turn() -> None:
    """A route that is cached for later messages was not free for the first one."""
    peer = peer_with_queues("amq.topic")
    peer.send(1, "queue.declare", queue="deep")
    for depth in range(1, 60):
        key = ".".join(["#.a"] * depth) + ".never"
        peer.feed(method(1, "queue.bind", queue="deep", exchange="amq.topic", routing_key=key))
    peer.take()
    broker = peer.stage.broker
    broker.begin_turn(peer.stage.now_ms)
    peer.connection.feed(publish(1, ".".join("a" * 100), b"x", exchange="amq.topic"))
    assert broker.turn.work > QUEUES + 100
    peer.stage.end_turn()


def test_ring_of_alternate_exchanges_and_many_keys_is_refused() -> None:
    """Each exchange of the ring splits every key into its words."""
    peer = Stage().opened()
    peer.open_channel(1)
    for number in range(100):
        alternate = {"alternate-exchange": f"e{(number + 1) % 100}"}
        declare = {"exchange": f"e{number}", "type": "topic", "arguments": alternate}
        peer.send(1, "exchange.declare", **declare)
    keys = [f"{number}" + ".a" * 120 for number in range(300)]
    peer.feed(publish(1, "k", b"x", {"headers": {"CC": keys}}, exchange="e0"))
    assert closes(peer.take()) == [("channel", 406, REFUSAL)]


def test_header_patterns_count_with_all_their_headers() -> None:
    peer = Stage().opened()
    peer.open_channel(1)
    peer.send(1, "queue.declare", queue="q")
    headers = {f"h{number}": "v" for number in range(60)}
    for key in map(str, range(100)):
        binding = {"queue": "q", "exchange": "amq.headers", "routing_key": key}
        peer.feed(method(1, "queue.bind", arguments=headers, **binding))
    peer.take()
    broker = peer.stage.broker
    broker.begin_turn(peer.stage.now_ms)
    peer.connection.feed(publish(1, "", b"x", {"headers": headers}, exchange="amq.headers"))
    assert broker.turn.work > 100 * 60 // LOOKS_PER_COPY
    peer.stage.end_turn()


def test_input_after_a_refusal_waits_for_another_turn() -> None:
    """A peer with many channels could have one costly refusal on each of them in one turn."""
    peer = Stage().opened()
    peer.open_channel(1)
    peer.open_channel(2)
    missing = publish(1, "k", b"x", exchange="none") + publish(2, "k", b"x", exchange="none")
    broker = peer.stage.broker
    broker.begin_turn(peer.stage.now_ms)
    peer.connection.feed(missing)
    assert peer.connection.has_rest
    peer.stage.end_turn()
    assert [close[1] for close in closes(peer.take())] == [404]
