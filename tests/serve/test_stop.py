"""SIGTERM and SIGINT under load: confirmed messages stay, requests are answered, it ends."""

import base64
import contextlib
import re
import signal
import socket
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.serve.test_process import serving

LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}

BODY = b'{"offset":0}'


class Publisher(threading.Thread):
    """Publishes persistent messages, each after the confirm of the one before."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self.confirmed = 0
        self.has_begun = threading.Event()
        self.ending: BaseException | None = None

    def run(self) -> None:
        try:
            connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self._port))
            channel = connection.channel()
            channel.queue_declare("kept", durable=True)
            channel.confirm_delivery()
            while True:
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", "kept", b"%d" % self.confirmed, properties)
                self.confirmed += 1
                if self.confirmed == 50:
                    self.has_begun.set()
        except pika.exceptions.AMQPError as fault:
            self.ending = fault


def waiting(port: int) -> int:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel: Any = connection.channel()
    count = channel.queue_declare("kept", durable=True, passive=True).method.message_count
    connection.close()
    return int(count)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_everything_confirmed_before_the_end_is_there_after_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path) as (process, ready):
        publishers = [Publisher(int(ready[2])) for _ in range(3)]
        for publisher in publishers:
            publisher.start()
        assert all(publisher.has_begun.wait(60) for publisher in publishers)
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        for publisher in publishers:
            publisher.join(60)
            # The peer was told: no publish was left without an answer or the end of its connection.
            assert isinstance(publisher.ending, pika.exceptions.ConnectionClosedByBroker)
            assert publisher.ending.reply_code == 320
    confirmed = sum(publisher.confirmed for publisher in publishers)
    with serving(tmp_path) as (_, ready):
        found = waiting(int(ready[2]))
    assert confirmed <= found <= confirmed + len(publishers)


def begin_request(port: int, path: str = "/api/streams/%2F/none/cursors/c") -> socket.socket:
    """A request whose body is not complete yet, which the node has begun to answer."""
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = (
        f"{'PUT' if path.startswith('/api') else 'POST'} {path} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {LOGIN['Authorization']}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    client.sendall(head.encode() + BODY[:3])
    return client


def test_a_request_that_is_on_its_way_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, ready):
        with HTTPConnectionOf(int(ready[4])) as plain:
            plain.request("GET", "/api/health")
            assert plain.getresponse().status == 200
        with begin_request(int(ready[4])) as client:
            process.send_signal(signal.SIGTERM)
            wait_until_nobody_listens(int(ready[2]))
            client.sendall(BODY[3:])
            with client.makefile("rb") as answers:
                assert answers.readline() == b"HTTP/1.1 404 Not Found\r\n"
        assert process.wait(timeout=60) == 0


def test_stalled_requests_are_cut_off_at_the_stop_without_an_error_line(tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr, serving(tmp_path / "data", stderr=stderr) as (process, ready):
        port = int(ready[4])
        begin_request(port, "/api/queues/%2F/x").close()  # in the middle of its request
        # Two clients that never complete their request, one of them on the fast path.
        with (
            begin_request(port, "/api/queues/%2F/x") as slow,
            begin_request(port, "/enqueue") as slow_on_fast_path,
        ):
            with HTTPConnectionOf(int(ready[4])) as plain:
                plain.request("GET", "/api/health")
                assert plain.getresponse().status == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
            for client in (slow, slow_on_fast_path):
                client.settimeout(60)
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(100) == b""
    told = errors.read_text()
    assert "the node has stopped" in told
    assert not re.search("level=error|Traceback", told)


def wait_until_nobody_listens(port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        while True:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
            time.sleep(0.01)


class HTTPConnectionOf(HTTPConnection):
    """A connection that a with-block closes."""

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port, timeout=60)

    def __enter__(self) -> "HTTPConnectionOf":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as (process, ready):
        # A peer that does not go when it is told to, and a request that does not go on: the node
        # gives them some time.
        with (
            socket.create_connection(("127.0.0.1", int(ready[2])), timeout=60) as peer,
            begin_request(int(ready[4]), "/api/queues/%2F/x"),
        ):
            peer.sendall(b"AMQP\x00\x00\x09\x01")
            assert peer.recv(1) == b"\x01"
            with HTTPConnectionOf(int(ready[4])) as plain:  # answered: the request has come, too
                plain.request("GET", "/api/health")
                assert plain.getresponse().status == 200
            process.send_signal(number)
            wait_until_nobody_listens(int(ready[2]))
            process.send_signal(number)
            assert process.wait(timeout=60) == 128 + number


def test_the_log_has_no_secrets(tmp_path: Path) -> None:
    secret = "hunter2-c0rrect"
    wrong = "wr0ng-passw0rd"
    errors = tmp_path / "stderr"
    flags = ["--log-level", "debug", "--default-user", "ann", "--default-pass", secret]
    with errors.open("w") as stderr, serving(tmp_path / "data", *flags, stderr=stderr) as (p, r):
        good = pika.URLParameters(f"amqp://ann:{secret}@127.0.0.1:{r[2]}/")
        pika.BlockingConnection(good).close()
        with pytest.raises(pika.exceptions.AMQPError):
            pika.BlockingConnection(pika.URLParameters(f"amqp://ann:{wrong}@127.0.0.1:{r[2]}/"))
        for password in (secret, wrong):
            sent = base64.b64encode(f"ann:{password}".encode()).decode()
            with HTTPConnectionOf(int(r[4])) as client:
                client.request("GET", "/api/queues", headers={"Authorization": f"Basic {sent}"})
                client.getresponse().read()
            with HTTPConnectionOf(int(r[4])) as client:
                client.request("GET", "/api/none", headers={"Authorization": f"Bearer {sent}"})
                client.getresponse().read()
        p.send_signal(signal.SIGTERM)
        assert p.wait(timeout=60) == 0
    text = errors.read_text()
    for hidden in (secret, wrong, base64.b64encode(f"ann:{secret}".encode()).decode()[:20]):
        assert hidden not in text
    for line in ("the node has started", "connection opened", "connection closed", "login refused"):
        assert f'msg="{line}"' in text
    assert "client=" in text and 'reason="closed by the peer: 200 Normal shutdown"' in text
