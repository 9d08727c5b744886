"""A body that arrives after its user was changed: the request has the rights that are left."""

import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask

WITHIN_S = 60.0
HASH = "AAAAALEkKvUBGEzMSFzin0zK97z+wnfsndrUYKOF2RUry1wo"  # SHA-256 hash of "pw"
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
NOTHING = {"configure": "", "write": "", "read": ""}
BASIC = "Basic " + b64encode(b"ann:pw").decode()
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BACKDOOR = {"name": "backdoor", "password_hash": HASH, "tags": "administrator"}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def make_user(server: RunningBroker, tags: str) -> None:
    body = {"password_hash": HASH, "tags": tags, "permissions": {"/": EVERYTHING}}
    ask(server, "DELETE", "/api/users/ann")
    assert ask(server, "PUT", "/api/users/ann", body)[0] == 201


@contextmanager
def admitted(
    server: RunningBroker, method: str, path: str, login: str, size: int
) -> Iterator[socket.socket]:
    """Send the head of a request, and wait until the broker has checked it and reads the body."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n"
    head += f"Expect: 100-continue\r\nContent-Length: {size}\r\n\r\n"
    with closing(socket.create_connection((server.host, server.http_port), WITHIN_S)) as client:
        client.sendall(head.encode())
        assert client.recv(len(CONTINUE), socket.MSG_WAITALL) == CONTINUE
        yield client


def status_after(client: socket.socket, body: bytes) -> int:
    client.sendall(body)
    return int(client.recv(12, socket.MSG_WAITALL).split()[1])


CHANGES = [
    ("DELETE", "/api/users/ann", None),
    ("PUT", "/api/users/ann", {"password_hash": HASH, "tags": "management"}),
    ("PUT", "/api/users/ann", {"password_hash": "", "tags": "administrator"}),
]


@pytest.mark.parametrize(("method", "path", "change"), CHANGES)
@pytest.mark.parametrize(
    ("target", "body"),
    [("/api/users/backdoor", BACKDOOR), ("/api/definitions", {"users": [BACKDOOR]})],
)
def test_former_administrator_cannot_make_users(
    server: RunningBroker, method: str, path: str, change: object, target: str, body: object
) -> None:
    make_user(server, "administrator")
    data = json.dumps(body).encode()
    verb = "POST" if target == "/api/definitions" else "PUT"
    with admitted(server, verb, target, BASIC, len(data)) as client:
        assert ask(server, method, path, change)[0] == 204
        assert status_after(client, data) == 401
    assert ask(server, "GET", "/api/users/backdoor")[0] == 404


def test_former_administrator_cannot_restore(server: RunningBroker) -> None:
    make_user(server, "administrator")
    data = bytes(1024)  # no archive: the broker would answer 400
    with admitted(server, "POST", "/api/restore/%2F/copied", BASIC, len(data)) as client:
        assert ask(server, "DELETE", "/api/users/ann")[0] == 204
        assert status_after(client, data) == 401


def test_user_who_is_changed_and_keeps_the_tag_is_served(server: RunningBroker) -> None:
    make_user(server, "administrator")
    body = {"password_hash": HASH, "tags": "administrator,x"}
    friend = json.dumps({"password_hash": HASH, "tags": ""}).encode()
    with admitted(server, "PUT", "/api/users/friend", BASIC, len(friend)) as client:
        assert ask(server, "PUT", "/api/users/ann", body)[0] == 204
        assert status_after(client, friend) == 201


@pytest.mark.parametrize(
    ("method", "path", "change", "status"),
    [
        ("PUT", "/api/permissions/%2F/ann", NOTHING, 403),
        ("DELETE", "/api/users/ann", None, 401),
        ("PUT", "/api/users/ann", {"password_hash": HASH, "tags": ""}, 403),
    ],
)
def test_former_worker_gets_no_job(
    server: RunningBroker, method: str, path: str, change: object, status: int
) -> None:
    make_user(server, "management")
    token = ask(server, "POST", "/api/jobs/token", login="ann:pw")[1]["token"]
    job = {"namespace": "/", "topic": "secret", "payload": ""}
    assert ask(server, "POST", "/enqueue", [job])[0] == 200
    call = "/dequeue?namespace=/&topic=secret"
    with admitted(server, "POST", call, f"Bearer {token}", 2) as client:
        assert ask(server, method, path, change)[0] == 204
        assert status_after(client, b"[]") == status
    assert len(ask(server, "GET", call)[1]) == 1
