"""The memory alarm over real sockets: everything that takes memory counts, and all publishers wait.

The limits are small, so that few bytes raise the alarm.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection

from leveret.testing import RunningBroker, broker
from tests.compat import wire
from tests.compat.client import Connection, Handshake, Method, NoAnswerError, connect, is_method

MIB = 1024 * 1024
KIB = 1024
WITHIN_S = 60.0
LOGIN = "Basic " + base64.b64encode(b"guest:guest").decode()


def ask(server: RunningBroker, verb: str, path: str, body: object = None) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=WITHIN_S)
    try:
        data = json.dumps(body) if body is not None else None
        headers = {"Authorization": LOGIN, "Content-Type": "application/json"}
        connection.request(verb, path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def head_of_publish(size: int) -> bytes:
    """A publish to a queue that does not exist, and the header of a content of this size."""
    publish = wire.method("basic.publish", {"exchange": "", "routing_key": "nowhere"})
    header = wire.header(size, {})
    return wire.frame(wire.METHOD, 1, publish) + wire.frame(wire.HEADER, 1, header)


def send_parts(connection: Connection, parts: int) -> None:
    """Send body frames, until the broker hangs up."""
    part = wire.frame(wire.BODY, 1, b"x" * (64 * KIB))
    with contextlib.suppress(OSError):
        for _ in range(parts):
            connection.socket.sendall(part)


def test_unfinished_messages_of_many_connections_take_bounded_memory() -> None:
    """They stop in the middle; the broker reads on from one at a time, and closes them."""
    peers = 20
    with broker(memory_high=8 * MIB) as server:
        limits = server.node.front.limits
        limits.finisher_slow_ms = limits.unfinished_wait_ms = 200
        connections = [connect(server.host, server.port) for _ in range(peers)]
        threads = []
        for connection in connections:
            connection.channel()
            connection.socket.settimeout(WITHIN_S)
            connection.socket.sendall(head_of_publish(4 * MIB))
            threads.append(threading.Thread(target=send_parts, args=(connection, 48)))
        for thread in threads:
            thread.start()
        most = 0
        deadline_s = time.monotonic() + WITHIN_S
        is_refused = False
        while not is_refused or any(thread.is_alive() for thread in threads):
            assert time.monotonic() < deadline_s
            most = max(most, int(server.node.front.unfinished_bytes))
            is_refused = is_refused or any(
                "506" in each.end_reason for each in list(server.node.amqp.protocols)
            )
            threads[0].join(0.01)
        assert 2 * MIB < most < 2 * MIB + 4 * MIB + peers * 256 * KIB
        refused = _first_close(connections)
        assert refused.fields["reply_code"] == 506
        assert "resource alarm" in str(refused.fields["reply_text"])
        for connection in connections:
            connection.drop()
        with contextlib.closing(connect(server.host, server.port)) as other:
            channel = other.channel()
            channel.call("confirm.select")
            channel.publish("", "nowhere", b"x" * 4 * MIB)
            assert is_method(channel.next(), "basic.ack")


def _first_close(connections: list[Connection]) -> Method:
    """Wait for a close on one of the connections and return it; most of them stay open."""
    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        for connection in connections:
            with contextlib.suppress(NoAnswerError):
                event = connection.receive(0, 0.05)
                if isinstance(event, Method) and event.name == "connection.close":
                    return event
    raise AssertionError("no connection was closed")


def test_large_messages_of_many_connections_all_get_through() -> None:
    """All of them together are far above the limit: one after the other gets complete."""
    with broker(memory_high=8 * MIB) as server:
        connections = [connect(server.host, server.port) for _ in range(10)]
        channels = [connection.channel() for connection in connections]
        threads = []
        for connection, channel in zip(connections, channels, strict=True):
            channel.call("confirm.select")
            connection.socket.settimeout(WITHIN_S)
            connection.socket.sendall(head_of_publish(4 * MIB))
            threads.append(threading.Thread(target=send_parts, args=(connection, 64)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)
        for channel in channels:
            assert is_method(channel.next(), "basic.ack")
        assert server.node.front.unfinished_bytes == 0
        for connection in connections:
            connection.close()


def begin_message(connection: Connection, parts: int) -> None:
    """Send the first parts of a message of 4 MiB, as far as the broker or its socket takes them."""
    connection.channel()
    connection.socket.sendall(head_of_publish(4 * MIB))
    threading.Thread(target=send_parts, args=(connection, parts), daemon=True).start()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def is_begun(server: RunningBroker, size: int) -> bool:
    """Return True if the broker has so many bytes, or reads no further from a connection."""
    is_held = any(each.is_held for each in list(server.node.amqp.protocols))
    return is_held or server.node.front.unfinished_bytes >= size


def is_confirmed(connection: Connection, size: int) -> bool:
    channel = connection.channel()
    channel.call("confirm.select")
    channel.publish("", "nowhere", b"x" * size)
    return is_method(channel.next(WITHIN_S), "basic.ack")


def test_unfinished_messages_of_one_user_leave_room_for_others() -> None:
    with broker(memory_high=8 * MIB, http=True) as server:
        front = server.node.front
        front.limits.finisher_slow_ms = front.limits.unfinished_wait_ms = 600_000
        allowed = {"configure": "", "write": ".*", "read": ""}
        assert ask(server, "PUT", "/api/users/hoarder", {"password": "h", "tags": ""})[0] == 201
        assert ask(server, "PUT", "/api/permissions/%2F/hoarder", allowed)[0] == 201
        login = Handshake(user="hoarder", password="h")
        with contextlib.ExitStack() as stack:
            for size in (20 * 64 * KIB, 40 * 64 * KIB):
                hoarder = connect(server.host, server.port, login)
                stack.callback(hoarder.drop)
                begin_message(hoarder, 20)
                wait_until(partial(is_begun, server, size))
            other = stack.enter_context(contextlib.closing(connect(server.host, server.port)))
            assert is_confirmed(other, 256 * KIB)
            assert front.unfinished_of.keys() == {"hoarder"}
        wait_until(lambda: not front.unfinished_of)


def test_slow_finisher_is_closed() -> None:
    with broker(memory_high=8 * MIB) as server:
        limits = server.node.front.limits
        limits.finisher_slow_ms, limits.unfinished_wait_ms = 200, 600_000
        slow = connect(server.host, server.port)
        begin_message(slow, 33)
        wait_until(lambda: server.node.front.unfinished_bytes == 33 * 64 * KIB)
        ended = threading.Event()

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not ended.wait(0.01):
                    slow.socket.sendall(wire.frame(wire.BODY, 1, b"x"))

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            with contextlib.closing(connect(server.host, server.port)) as other:
                assert is_confirmed(other, MIB)
            assert _first_close([slow]).fields["reply_code"] == 506
        finally:
            ended.set()
            thread.join()
            slow.drop()


def test_http_publishes_and_jobs_raise_the_alarm_and_are_refused() -> None:
    with broker(memory_high=2 * MIB, http=True) as server:
        ask(server, "PUT", "/api/queues/%2F/q", {"durable": False})
        body = {
            "routing_key": "q",
            "payload": "x" * 64 * KIB,
            "payload_encoding": "string",
            "properties": {},
        }
        publish = "/api/exchanges/%2F/amq.default/publish"
        status, text = 200, ""
        for _ in range(1000):
            status, text = ask(server, "POST", publish, body)
            if status != 200:
                break
        assert status == 503
        assert "low on memory" in text
        job = {"namespace": "n", "topic": "t", "payload": "eA=="}
        status, text = ask(server, "POST", "/enqueue", [job])
        assert status == 503, text
        assert "low on memory" in text
        ask(server, "DELETE", "/api/queues/%2F/q/contents")
        deadline_s = time.monotonic() + WITHIN_S
        while status != 200 and time.monotonic() < deadline_s:
            status, _ = ask(server, "POST", publish, body)
        assert status == 200


def test_output_that_a_consumer_does_not_read_counts() -> None:
    with broker(http=True) as server:
        peer = connect(server.host, server.port)
        channel = peer.channel()
        channel.call("queue.declare", queue="q")
        channel.call("basic.consume", queue="q", no_ack=True)
        with contextlib.closing(connect(server.host, server.port)) as publisher:
            sender = publisher.channel()
            sender.call("confirm.select")
            queue = server.node.broker.vhost("/").queues["q"]
            while queue.ready.count < 4:  # the consumer does not read any more
                sender.publish("", "q", b"x" * 64 * KIB)
                assert is_method(sender.next(), "basic.ack")
            sender.call("queue.purge", queue="q")
        assert held_bytes(server) > 128 * KIB
        peer.drop()


def held_bytes(server: RunningBroker) -> float:
    _, text = ask(server, "GET", "/metrics")
    (line,) = [x for x in text.splitlines() if x.startswith("leveret_memory_held_bytes ")]
    return float(line.split()[1])


def wait_until_held(server: RunningBroker, at_least: int) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while (held := held_bytes(server)) < at_least:
        assert time.monotonic() < deadline_s, held


def test_incomplete_http_bodies_count() -> None:
    with (
        broker(http=True) as server,
        socket.create_connection((server.host, server.http_port)) as peer,
    ):
        head = "POST /api/definitions HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
        peer.sendall(f"{head}{LOGIN}\r\nContent-Length: {2 * MIB}\r\n\r\n".encode())
        peer.sendall(b"x" * MIB)
        wait_until_held(server, MIB)


def test_http_answers_that_a_client_does_not_read_count() -> None:
    with broker(http=True) as server, socket.socket() as peer:
        with contextlib.closing(connect(server.host, server.port)) as publisher:
            sender = publisher.channel()
            sender.call("queue.declare", queue="q")
            sender.call("confirm.select")
            sender.publish("", "q", b"x" * 16 * MIB)
            assert is_method(sender.next(), "basic.ack")
        before = held_bytes(server)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        peer.connect((server.host, server.http_port))
        wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
        data = json.dumps(wanted)
        head = "POST /api/queues/%2F/q/get HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
        peer.sendall(f"{head}{LOGIN}\r\nContent-Length: {len(data)}\r\n\r\n{data}".encode())
        queue = server.node.broker.vhost("/").queues["q"]
        deadline_s = time.monotonic() + WITHIN_S
        while queue.ready.count:
            assert time.monotonic() < deadline_s
            held_bytes(server)
        assert before > 16 * MIB
        wait_until_held(server, 4 * MIB)
