"""Request bodies: refused before they are read, and limited in sum."""

import contextlib
import json
import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing

import pytest

from leveret.http.framework import body_budget, operations
from leveret.http.framework.operations import Access
from leveret.http.transport.http_connection import DRAIN_BYTES_MAX
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask

WITHIN_S = 60.0
BIG = 1024 * 1024
GUEST = "Basic " + b64encode(b"guest:guest").decode()
WRONG = "Basic " + b64encode(b"guest:wrong").decode()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def head(method: str, path: str, login: str | None, length: int | None = BIG) -> bytes:
    size = f"Content-Length: {length}" if length is not None else "Transfer-Encoding: chunked"
    who = "" if login is None else f"Authorization: {login}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{who}{size}\r\n\r\n".encode()


def connect(server: RunningBroker) -> socket.socket:
    return socket.create_connection((server.host, server.http_port), timeout=WITHIN_S)


def status_of(client: socket.socket) -> int:
    return int(read_answer(client).split()[1])


def read_answer(client: socket.socket) -> bytes:
    """Read one whole answer, so that the next one on the connection begins with its status."""
    answer = b""
    while (end := answer.find(b"\r\n\r\n")) < 0:
        answer += client.recv(65_536) or pytest.fail(f"the answer ends in its head: {answer!r}")
    found = re.search(rb"content-length: *(\d+)", answer[:end].lower())
    size = end + 4 + (int(found[1]) if found else 0)
    while len(answer) < size:
        answer += client.recv(65_536) or pytest.fail(f"the answer is cut off: {answer!r}")
    return answer


PATHS = [
    ("POST", "/enqueue"),
    ("POST", "/ack"),
    ("POST", "/cancel"),
    ("PUT", "/topics/a/b"),
    ("PUT", "/api/queues/%2F/q"),
    ("POST", "/api/exchanges/%2F/amq.default/publish"),
    ("POST", "/api/definitions"),
]


@pytest.mark.parametrize("login", [None, WRONG, "Bearer nonsense"])
@pytest.mark.parametrize("length", [BIG, 1_000, None])
@pytest.mark.parametrize(("method", "path"), PATHS)
def test_wrong_login_is_refused_before_the_body_arrives(
    server: RunningBroker, method: str, path: str, login: str | None, length: int | None
) -> None:
    with closing(connect(server)) as client:
        client.sendall(head(method, path, login, length))
        client.sendall(b"x" * 100 if length is not None else b"64\r\n" + b"x" * 100 + b"\r\n")
        assert status_of(client) == 401


def test_refused_client_that_sends_on_and_on_is_cut_off(server: RunningBroker) -> None:
    with closing(connect(server)) as client:
        client.sendall(head("PUT", "/api/queues/%2F/q", None, 1 << 40))
        assert status_of(client) == 401
        with pytest.raises(OSError):
            for _ in range(1_000):
                client.sendall(bytes(DRAIN_BYTES_MAX))


def test_refused_body_is_dropped_and_the_connection_goes_on(server: RunningBroker) -> None:
    with closing(connect(server)) as client:
        client.sendall(head("PUT", "/api/queues/%2F/q", None, 100_000))
        assert status_of(client) == 401
        client.sendall(b"x" * 100_000 + head("GET", "/api/whoami", GUEST, 0))
        assert status_of(client) == 200


def test_body_may_follow_its_head_later(server: RunningBroker) -> None:
    _, found = ask(server, "POST", "/api/jobs/token")
    job = [{"namespace": "/", "topic": "bodies", "payload": "eHh4" * 10_000}]
    body = json.dumps(job).encode()
    for login in (GUEST, f"Bearer {found['token']}"):
        with closing(connect(server)) as client:
            client.sendall(head("POST", "/enqueue", login, len(body)))
            for at in range(0, len(body), 10_000):
                client.sendall(body[at : at + 10_000])
            assert status_of(client) == 200


def test_chunked_body_may_come_byte_by_byte(server: RunningBroker) -> None:
    with closing(connect(server)) as client:
        client.sendall(head("PUT", "/api/queues/%2F/chunked", GUEST, None))
        for byte in b"2;ext=1\r\n{}\r\n0\r\n\r\n":
            wait_for_held(server)
            client.sendall(bytes((byte,)))
        assert status_of(client) == 201


def test_all_bodies_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_budget, "BODIES_BYTES_MAX", 50_000)
    with broker(http=True) as server:
        _, found = ask(server, "POST", "/api/jobs/token")
        token = f"Bearer {found['token']}"
        paths = (("/enqueue", token), ("/enqueue", GUEST), ("/api/definitions", GUEST))
        for path, login in paths:
            with closing(connect(server)) as held, closing(connect(server)) as other:
                held.sendall(head("POST", path, login, 40_000) + b" " * 30_000)
                wait_for_held(server)
                other.sendall(head("POST", path, login, 40_000) + b" " * 40_000)
                answer = read_answer(other)
                assert int(answer.split()[1]) == 503, (path, login)
                assert b"retry-after: 1" in answer.lower()
                held.sendall(b" " * 10_000)
                assert status_of(held) == 400
                other.sendall(head("POST", path, login, 40_000) + b" " * 40_000)
                assert status_of(other) == 400, (path, login)


def test_bodies_of_one_user_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_budget, "BODIES_BYTES_MAX", 50_000)
    with broker(http=True) as server:
        user = {"password": "low", "tags": "management"}
        permission = {"configure": ".*", "write": ".*", "read": ".*"}
        assert ask(server, "PUT", "/api/users/low", user)[0] == 201
        assert ask(server, "PUT", "/api/permissions/%2F/low", permission)[0] == 201
        _, found = ask(server, "POST", "/api/jobs/token", login="low:low")
        low = "Basic " + b64encode(b"low:low").decode()
        publish = "/api/exchanges/%2F/amq.default/publish"
        for path, login in (("/enqueue", f"Bearer {found['token']}"), (publish, low)):
            with closing(connect(server)) as held, closing(connect(server)) as other:
                held.sendall(head("POST", path, login, 20_000) + b" " * 19_000)
                wait_for_held(server)
                other.sendall(head("POST", path, login, 20_000) + b" " * 19_000)
                assert status_of(other) == 503, path
                assert ask(server, "POST", "/api/definitions", b" " * 25_000)[0] == 400
                held.sendall(b" " * 1_000)
                assert status_of(held) == 400
        with closing(connect(server)) as client:  # the share of the user is free again
            client.sendall(head("POST", publish, low, 20_000) + b" " * 20_000)
            assert status_of(client) == 400


def test_slow_body_on_the_fast_path_ends_the_connection(
    server: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "BODY_S", 0.1)
    _, found = ask(server, "POST", "/api/jobs/token")
    with closing(connect(server)) as client:
        client.sendall(head("POST", "/enqueue", f"Bearer {found['token']}", 1_000))
        with contextlib.suppress(ConnectionError):
            for _ in range(1_000):
                client.sendall(b" ")
                wait_for_held(server)
            pytest.fail("the whole body was taken")


def wait_for_held(server: RunningBroker) -> None:
    """Return when the node has read the bytes that were sent: it answers another client."""
    for _ in range(3):
        assert ask(server, "GET", "/api/whoami")[0] == 200


def test_every_operation_with_a_body_needs_a_login_or_is_small() -> None:
    from leveret.http.app import OPERATIONS

    public = [one for one in OPERATIONS if one.body is not None and one.access is Access.PUBLIC]
    assert all(one.body_bytes_max <= 16_384 for one in public)
