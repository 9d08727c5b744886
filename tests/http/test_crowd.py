"""Many HTTP connections of one address: others, local clients and health checks get answers."""

import contextlib
import socket
import time
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from leveret.http.transport import http_connection
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask_whole
from tests.http.management import Api

ATTACKER = "127.0.0.2"  # the whole network 127.0.0.0/8 is this machine
OTHER = "127.0.0.3"
WITHIN_S = 60
UNFINISHED_HEAD = b"GET /api/health HTTP/1.1\r\nHost: x\r\nX-Slow: "
UNFINISHED_BODY = (
    b"PUT /api/vhosts/v HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
    b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"
)
WAITING = b"GET /dequeue?namespace=n&topic=t&limit=1&wait=60 HTTP/1.1\r\nHost: localhost\r\n"
JOB = {"namespace": "n", "topic": "t", "payload": ""}


@contextlib.contextmanager
def connected(server: RunningBroker, count: int, host: str) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                socket.create_connection(
                    (server.host, server.http_port), WITHIN_S, source_address=(host, 0)
                )
            )
            for _ in range(count)
        ]


def status_from(server: RunningBroker, host: str, path: str = "/api/health") -> int:
    client = HTTPConnection(
        server.host, server.http_port, timeout=WITHIN_S, source_address=(host, 0)
    )
    try:
        client.request("GET", path, headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        return client.getresponse().status
    finally:
        client.close()


def is_closed(client: socket.socket) -> bool:
    client.settimeout(WITHIN_S)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def health_status(client: socket.socket) -> int:
    """Ask for the health on an open connection, and read the whole answer."""
    client.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = HTTPResponse(client)
    answer.begin()
    answer.read()
    return answer.status


@pytest.mark.parametrize("sent", [b"", UNFINISHED_HEAD, UNFINISHED_BODY])
def test_idle_connections_of_one_address_do_not_keep_other_addresses_out(sent: bytes) -> None:
    with broker(http=True, http_connections_max=40, http_connections_per_address_max=30) as server:
        with connected(server, 100, ATTACKER) as crowd:
            for each in crowd:
                with contextlib.suppress(ConnectionError):
                    each.sendall(sent)
            assert status_from(server, OTHER) == 200
            assert status_from(server, OTHER, "/api/overview") == 200
            assert status_from(server, ATTACKER) == 200
            assert sum(map(is_closed, crowd[:60])) == 60  # the oldest make room


def test_idle_connections_of_many_addresses_do_not_keep_others_out() -> None:
    with broker(http=True, http_connections_max=20) as server, contextlib.ExitStack() as crowd:
        for number in range(10, 60):
            crowd.enter_context(connected(server, 1, f"127.0.1.{number}"))
        assert status_from(server, OTHER) == 200


@pytest.mark.parametrize("rest", [b"\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"])
def test_connections_that_wait_for_an_answer_stay_open_and_local_clients_are_served(
    rest: bytes,
) -> None:
    """The fast path takes the first kind of request, and uvicorn the second."""
    with broker(http=True, http_connections_max=4, http_connections_per_address_max=4) as server:
        assert Api(server).put("users/other", {"password": "guest", "tags": "administrator"}) == 201
        with connected(server, 4, ATTACKER) as crowd:
            for number, each in enumerate(crowd):  # one user may have half of them waiting
                user = ("guest", "other")[number % 2]
                login = b64encode(f"{user}:guest".encode())
                each.sendall(WAITING + b"Authorization: Basic " + login + b"\r\n" + rest)
            wait_for_running(server, 4)
            assert status_from(server, OTHER, "/api/overview") == 200
            with connected(server, 1, ATTACKER) as late:
                assert is_closed(late[0])
            assert ask_whole(server, "POST", "/enqueue", [JOB] * 4)[0] == 200
            for each in crowd:
                assert each.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"


def wait_for_running(server: RunningBroker, count: int) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while server.node.view.metrics.requests.running != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_connection_that_was_idle_longest_is_closed_first() -> None:
    with broker(http=True, http_connections_max=3) as server:
        with connected(server, 3, OTHER) as clients:
            for each in (clients[1], clients[0], clients[2]):
                assert health_status(each) == 200
            assert status_from(server, OTHER) == 200
            assert is_closed(clients[1])
            assert health_status(clients[0]) == 200


def test_slow_head_does_not_hold_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with broker(http=True) as server, connected(server, 1, OTHER) as clients:
        clients[0].settimeout(WITHIN_S)
        with monkeypatch.context() as patch, contextlib.suppress(ConnectionError):
            patch.setattr(http_connection, "HEAD_S", 0.2)
            clients[0].sendall(b"GET /api/health HTTP/1.1\r\n")
            clients[0].settimeout(0.02)
            while True:  # each byte comes long before any deadline of silence
                clients[0].sendall(b"x")
                try:
                    if clients[0].recv(1) == b"":
                        break
                except TimeoutError:
                    continue
        assert Api(server).get("overview")
