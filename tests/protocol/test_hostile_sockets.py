"""Hostile and careless peers over real sockets: each is closed, and no other client is affected.

The broker runs in a thread of the test, or as a process where signals and many descriptors matter.
Every wait has a deadline, and waits for the socket, not for a fixed time.
"""

from __future__ import annotations

import contextlib
import resource
import select
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.testing import ManualClock, RunningBroker, broker
from tests.compat import wire
from tests.compat.client import (
    Channel,
    Closed,
    Connection,
    Event,
    Handshake,
    Method,
    Preamble,
    connect,
    is_method,
)
from tests.serve.test_process import serving

KIB = 1024
STALLED_S = 0.5  # a socket that takes nothing for so long is held by its peer


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker() as found:
        yield found


@pytest.fixture(scope="module")
def hasty() -> Iterator[RunningBroker]:
    """A broker with a short handshake deadline that a busy machine still meets."""
    with broker(handshake_timeout_ms=2_000) as found:
        yield found


def is_served(host: str, port: int) -> bool:
    """Whether a well-behaved client gets its message back."""
    connection = connect(host, port)
    channel = connection.channel()
    channel.call("queue.declare", queue="served", exclusive=True)
    channel.publish("", "served", b"hello")
    message = channel.get("served")
    connection.close()
    return message is not None and message.body == b"hello"


def close_code(event: Event) -> int:
    assert isinstance(event, Method)
    assert event.name == "connection.close"
    code = event.fields["reply_code"]
    assert isinstance(code, int)
    return code


def ready(sock: socket.socket, event: int, wait_s: float) -> bool:
    """Whether a socket is ready in time; unlike select() for any number of descriptors."""
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(wait_s * 1000))


def send_until_stalled(connection: Connection, data: bytes, times: int) -> int:
    """Write until the broker stops reading. Return the number of bytes that it took."""
    sent = 0
    view = memoryview(data * times)
    connection.socket.setblocking(False)
    while sent < len(view) and ready(connection.socket, select.POLLOUT, STALLED_S):
        with contextlib.suppress(BlockingIOError):
            sent += connection.socket.send(view[sent : sent + 256 * KIB])
    connection.socket.setblocking(True)
    return sent


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-OpenSSH\r\n", b"AMQP\x00\x01\x00\x00", b"\x16\x03\x01" * 50]
)
def test_another_protocol_is_told_which_one_is_spoken(server: RunningBroker, data: bytes) -> None:
    connection = Connection(server.host, server.port)
    connection.send_bytes(data)
    assert connection.read_event() == Preamble(wire.PROTOCOL_HEADER)
    assert isinstance(connection.read_event(), Closed)
    connection.drop()
    assert is_served(server.host, server.port)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x03\x00\x01\xff\xff\xff\xff" + b"x" * 100_000, 501),
        (wire.frame(wire.METHOD, 1, b"\x00\x3c\x00\x28")[:-1] + b"\x00" * 50_000, 501),
        (wire.frame(9, 0, b"") + b"\xff" * 50_000, 501),
        (wire.frame(wire.BODY, 1, b"x" * 100_000), 505),
        (wire.frame(wire.METHOD, 1, b"\x00\x4d\x00\x01"), 503),
    ],
)
def test_bad_frame_gets_its_close_and_the_socket_is_closed(
    server: RunningBroker, data: bytes, code: int
) -> None:
    connection = connect(server.host, server.port)
    connection.channel()
    connection.send_bytes(data)
    assert close_code(connection.receive(0)) == code
    if code != 501:  # after a framing error nothing that follows can be understood
        assert isinstance(connection.await_closed(), Closed)
    connection.drop()
    assert is_served(server.host, server.port)


@pytest.mark.parametrize("said", [b"", b"AMQ", wire.PROTOCOL_HEADER])
def test_handshake_that_does_not_go_on_is_ended(hasty: RunningBroker, said: bytes) -> None:
    connection = Connection(hasty.host, hasty.port)
    connection.send_bytes(said)
    connection.await_closed()
    connection.drop()


def test_handshake_that_trickles_is_ended(hasty: RunningBroker) -> None:
    connection = Connection(hasty.host, hasty.port)
    connection.send_bytes(wire.PROTOCOL_HEADER + b"\x01\x00\x00\x00\x00\x20\x00")
    while not ready(connection.socket, select.POLLIN, 0.02) or connection.socket.recv(65536):
        connection.send_bytes(b"x")
    connection.drop()
    assert is_served(hasty.host, hasty.port)


def allow_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"only {hard} descriptors are allowed here")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def test_a_thousand_idle_handshakes_disturb_nobody(tmp_path: Path) -> None:
    allow_descriptors(4096)
    with serving(tmp_path, "--handshake-timeout-ms", "5000") as (_, ready):
        host, port = ready[1], int(ready[2])
        idle = [socket.create_connection((host, port)) for _ in range(1000)]
        for sock in idle[::2]:
            sock.sendall(wire.PROTOCOL_HEADER[:5])
        assert is_served(host, port)
        for sock in idle:
            sock.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(64) == b""
            sock.close()
        assert is_served(host, port)


def consumer_count(channel: Channel, queue: str) -> object:
    declared = channel.call("queue.declare", queue=queue, passive=True)
    assert isinstance(declared, Method)
    return declared.fields["consumer_count"]


def test_what_a_peer_without_heartbeats_holds_goes_to_others_at_once() -> None:
    clock = ManualClock()
    with broker(clock=clock) as server:
        silent = connect(server.host, server.port, Handshake(heartbeat_s=2))
        other = connect(server.host, server.port)
        channel = silent.channel()
        channel.call("queue.declare", queue="held")
        channel.call("basic.consume", queue="held")
        asking = other.channel()
        assert consumer_count(asking, "held") == 1
        clock.advance(seconds=7)
        assert consumer_count(asking, "held") == 0
        other.close()
        silent.socket.close()


def test_flood_of_connections_leaves_nothing(server: RunningBroker) -> None:
    for number in range(300):
        connection = Connection(server.host, server.port)
        if number % 3:
            connection.send_bytes(wire.PROTOCOL_HEADER)
        if number % 3 == 2:
            connection.receive(0)
            connection.send_bytes(b"\x01\x00")
        connection.drop()
    assert is_served(server.host, server.port)
    watch = connect(server.host, server.port)
    channel = watch.channel()
    for _ in range(200):  # every round trip is a turn in which the broker sees sockets go
        if len(server.node.amqp.protocols) == 1:
            break
        channel.sync()
    assert len(server.node.amqp.protocols) == 1
    watch.close()


def test_frames_that_come_octet_by_octet_hold_up_nobody(server: RunningBroker) -> None:
    slow = [connect(server.host, server.port) for _ in range(20)]
    for connection in slow:
        connection.send_bytes(b"\x03\x00\x01\x00\x01\xff\xf8")
    for _ in range(30):
        for connection in slow:
            connection.send_bytes(b"x")
    assert is_served(server.host, server.port)
    for connection in slow:
        connection.drop()
    assert is_served(server.host, server.port)


def unsent_bytes(where: RunningBroker) -> int:
    """The most that waits in the broker for one socket."""
    protocols = list(where.node.amqp.protocols.values())
    return max(protocol._transport.get_write_buffer_size() for protocol in protocols)


def test_consumer_that_never_reads_is_sent_little_and_others_go_on(server: RunningBroker) -> None:
    lazy = connect(server.host, server.port)
    channel = lazy.channel()
    channel.call("queue.declare", queue="heap", exclusive=False)
    lazy.send(1, "basic.consume", queue="heap", consumer_tag="t", no_ack=True)
    publisher = connect(server.host, server.port)
    source = publisher.channel()
    count = 2000
    for number in range(count):
        source.publish("", "heap", b"%06d" % number + b"x" * 10_000)
    source.sync()
    assert is_served(server.host, server.port)
    assert unsent_bytes(server) < 1024 * KIB
    assert server.node.broker.vhost("/").queues["heap"].ready.count > 0
    assert is_method(lazy.receive(1), "basic.consume-ok")
    for number in range(count):
        delivery = lazy.receive(1)
        assert isinstance(delivery, Method)
        assert delivery.body.startswith(b"%06d" % number)
    channel.call("queue.delete", queue="heap")
    lazy.close()
    publisher.close()


def test_gets_are_answered_as_fast_as_the_peer_reads(server: RunningBroker) -> None:
    """A few kilobytes of gets can ask for any number of bytes: the broker does not buffer them."""
    count, body = 300, b"x" * 256 * KIB
    polite = connect(server.host, server.port).channel()
    polite.call("queue.declare", queue="big")
    for _ in range(count):
        polite.publish("", "big", body)
    greedy = connect(server.host, server.port).channel()
    for _ in range(count):
        greedy.send("basic.get", queue="big", no_ack=True)
    for _ in range(20):
        found = polite.call("queue.declare", queue="big", passive=True)
        assert isinstance(found, Method)
        left = found.fields["message_count"]
        assert isinstance(left, int) and left > count // 2
    for _ in range(count):
        answer = greedy.next()
        assert isinstance(answer, Method) and answer.body == body
    found = polite.call("queue.delete", queue="big")
    assert isinstance(found, Method) and found.fields["message_count"] == 0
    greedy.connection.close()
    polite.connection.close()


def test_peer_that_does_not_read_its_answers_is_not_read_from(server: RunningBroker) -> None:
    rude = connect(server.host, server.port)
    channel = rude.channel()
    frames = wire.frame(
        wire.METHOD, 1, wire.method("basic.publish", {"routing_key": "nowhere", "mandatory": True})
    ) + channel.content_frames(b"x" * 50_000, {})
    taken = send_until_stalled(rude, frames, 800)
    assert taken < 30_000_000
    assert unsent_bytes(server) < 8_000_000
    assert is_served(server.host, server.port)
    for _ in range(taken // len(frames)):
        returned = rude.receive(1)
        assert isinstance(returned, Method)
        assert (returned.name, len(returned.body)) == ("basic.return", 50_000)
    rude.drop()


def flood(channel: Channel, queue: str, count: int, size: int) -> threading.Thread:
    """A thread that publishes as fast as the broker reads."""

    def run() -> None:
        for number in range(count):
            channel.publish("", queue, b"%08d" % number + b"x" * size)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def drain(where: RunningBroker, queue: str, count: int) -> None:
    """Consume so many messages and see that they are the right ones, in order."""
    consumer = connect(where.host, where.port)
    channel = consumer.channel()
    channel.call("basic.consume", queue=queue, consumer_tag="t", no_ack=True)
    for number in range(count):
        delivery = channel.next(20)
        assert isinstance(delivery, Method)
        assert delivery.body.startswith(b"%08d" % number)
    consumer.close()


def test_publisher_is_blocked_while_memory_is_short_and_goes_on_after() -> None:
    count = 1500
    with broker(memory_high=10_000_000.0) as where:
        publisher = connect(where.host, where.port)
        channel = publisher.channel()
        channel.call("queue.declare", queue="q")
        thread = flood(channel, "q", count, 32 * KIB)
        blocked = publisher.receive(0, 20)
        assert isinstance(blocked, Method)
        assert (blocked.name, blocked.fields) == ("connection.blocked", {"reason": "low on memory"})
        assert can_declare(where.host, where.port)
        held = where.node.broker.vhost("/").queues["q"].ready.body_bytes
        assert held < 30_000_000
        drain(where, "q", count)
        assert is_method(publisher.receive(0, 20), "connection.unblocked")
        thread.join(60)
        assert not thread.is_alive()
        publisher.close()


def can_declare(host: str, port: int) -> bool:
    """Return True if a client that publishes nothing is not blocked."""
    connection = connect(host, port)
    answer = connection.channel().call("queue.declare", queue="other", exclusive=True)
    connection.close()
    return is_method(answer, "queue.declare-ok")


def test_consumer_is_not_starved_by_a_publisher_at_full_speed() -> None:
    count = 20_000
    with broker() as where:
        publisher = connect(where.host, where.port)
        channel = publisher.channel()
        channel.call("queue.declare", queue="q")
        consumer = connect(where.host, where.port)
        reader = consumer.channel()
        reader.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
        thread = flood(channel, "q", count, 200)
        seen_while_publishing = 0
        for number in range(count):
            delivery = reader.next(20)
            assert isinstance(delivery, Method)
            assert delivery.body.startswith(b"%08d" % number)
            seen_while_publishing += thread.is_alive()
        thread.join(60)
        assert seen_while_publishing > count // 10
        publisher.close()
        consumer.close()


def test_sigterm_tells_every_client_and_the_exit_code_is_zero(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, ready):
        host, port = ready[1], int(ready[2])
        clients = [connect(host, port) for _ in range(5)]
        half_open = Connection(host, port)
        half_open.start()
        process.send_signal(signal.SIGTERM)
        for client in clients:
            event = client.receive(0, 10)
            assert close_code(event) == 320
            assert isinstance(event, Method)
            assert str(event.fields["reply_text"]).startswith("CONNECTION_FORCED - ")
            client.await_closed()
            client.drop()
        half_open.await_closed()
        half_open.drop()
        assert process.wait(timeout=60) == 0


def test_sigterm_does_not_wait_for_a_client_that_does_not_answer(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, ready):
        deaf = connect(ready[1], int(ready[2]), Handshake())
        deaf.answers_close = False
        process.send_signal(signal.SIGTERM)
        assert close_code(deaf.receive(0, 10)) == 320
        deaf.await_closed(60)
        deaf.drop()
        assert process.wait(timeout=60) == 0
