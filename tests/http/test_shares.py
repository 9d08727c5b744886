"""Many slow requests and tasks of one user leave room for other users and administrators."""

import contextlib
import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from select import select

import pytest

from leveret.arrow.bulk_reads import READS_MAX, USER_READS_MAX
from leveret.http.framework.request_shares import USER_REQUESTS_MAX
from leveret.tasks.runner import RESERVED, RUNNING_MAX, USER_RUNNING_MAX
from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api, add_user, connected

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ALL = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as running:
        yield running


@contextlib.contextmanager
def waiting_request(server: RunningBroker, user: str) -> Iterator[socket.socket]:
    """Begin a request whose body has not arrived, and wait until the broker asks for it."""
    login = b64encode(f"{user}:{user}".encode()).decode()
    head = (
        f"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
        f"Authorization: Basic {login}\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((server.host, server.http_port), 60) as client:
        client.sendall(head.encode())
        assert client.recv(len(CONTINUE), socket.MSG_WAITALL) == CONTINUE
        yield client


def test_user_with_many_slow_requests_must_wait_and_others_need_not(server: RunningBroker) -> None:
    api = Api(server)
    busy = add_user(api, "busy", "management", **ALL)
    other = add_user(api, "other", "management", **ALL)
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(waiting_request(server, "busy")) for _ in range(USER_REQUESTS_MAX)
        ]
        refused = busy.ask("GET", "queues")
        assert refused.status == 429
        assert refused.headers["Retry-After"] == "1"
        assert "busy" in refused.json["reason"]
        assert other.ask("GET", "queues").status == 200
        assert api.ask("GET", "queues").status == 200
        opened[0].sendall(b"{}")
        assert opened[0].recv(12, socket.MSG_WAITALL) in (b"HTTP/1.1 201", b"HTTP/1.1 204")
        while busy.ask("GET", "queues").status == 429:  # until the answer is finished
            pass


def start_slow_task(api: Api) -> int:
    """Start a task that lasts: it moves one message in a thousand seconds."""
    body = {"kind": "copy", "vhost": "/", "queue": "q", "to": {"vhost": "/", "queue": "to"}}
    return api.post("tasks", {**body, "rate": 0.001}).status


def fill(server: RunningBroker) -> None:
    with connected(server) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("q", "to"):
            channel.queue_declare(name)
        for _ in range(2):
            channel.basic_publish("", "q", b"x")


def test_user_with_many_tasks_must_wait_and_others_need_not(server: RunningBroker) -> None:
    api = Api(server)
    fill(server)
    busy = add_user(api, "busy", "management", **ALL)
    statuses = [start_slow_task(busy) for _ in range(USER_RUNNING_MAX + 1)]
    assert statuses == [201] * USER_RUNNING_MAX + [429]
    assert start_slow_task(add_user(api, "other", "management", **ALL)) == 201
    assert start_slow_task(api) == 201
    running = json.loads(busy.ask("GET", "tasks").data)
    assert busy.delete(f"tasks/{running[0]['id']}") == 204
    assert start_slow_task(busy) == 201


def test_tasks_of_many_users_leave_room_for_administrators(server: RunningBroker) -> None:
    api = Api(server)
    fill(server)
    users = [
        add_user(api, f"busy-{number}", "management", **ALL)
        for number in range(RUNNING_MAX // USER_RUNNING_MAX)
    ]
    statuses = [start_slow_task(user) for user in users for _ in range(USER_RUNNING_MAX)]
    assert statuses.count(201) == RUNNING_MAX - RESERVED
    refused = users[0].post("tasks", {"kind": "delete", "vhost": "/", "queue": "q"})
    assert refused.status == 429
    assert refused.headers["Retry-After"]
    assert [start_slow_task(api) for _ in range(RESERVED + 1)] == [201] * RESERVED + [429]


@contextlib.contextmanager
def slow_read(server: RunningBroker, user: str) -> Iterator[socket.socket]:
    """Ask for a range of the stream "s", and read nothing of the answer."""
    login = b64encode(f"{user}:{user}".encode()).decode()
    head = "GET /api/streams/%2F/s/batches?from=0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.settimeout(60)
        client.connect((server.host, server.http_port))
        client.sendall(f"{head}Basic {login}\r\n\r\n".encode())
        yield client


def test_user_with_many_slow_reads_must_wait_and_others_need_not(server: RunningBroker) -> None:
    api = Api(server)
    for user in ("busy", "other"):
        add_user(api, user, "management", **ALL)
    with connected(server) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        for _ in range(12):
            channel.basic_publish("", "s", b"x" * 1_000_000)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(slow_read(server, "busy")) for _ in range(READS_MAX)]
        served: list[socket.socket] = []
        while len(served) < USER_READS_MAX:
            served, _, _ = select(opened, [], [], 60)
        other = stack.enter_context(slow_read(server, "other"))
        assert other.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        for client in [*served, other]:
            client.close()
        for client in opened:
            if client not in served:
                assert client.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"


def test_client_with_many_waiting_calls_is_told_to_try_again_and_others_may_wait() -> None:
    with broker(http=True, http_connections_max=4) as server, contextlib.ExitStack() as stack:
        api = Api(server)
        tokens = {
            name: str(add_user(api, name, "management", **ALL).post("jobs/token", {}).json["token"])
            for name in ("busy", "other")
        }

        def wait_for_job(name: str) -> socket.socket:
            client = stack.enter_context(
                socket.create_connection((server.host, server.http_port), 60)
            )
            head = "GET /dequeue?namespace=%2F&topic=t&wait=60 HTTP/1.1\r\nHost: localhost\r\n"
            client.sendall(f"{head}Authorization: Bearer {tokens[name]}\r\n\r\n".encode())
            return client

        busy = [wait_for_job("busy") for _ in range(3)]
        (refused,), _, _ = select(busy, [], [], 60)
        assert refused.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 429"
        refused.close()
        waiting = [client for client in busy if client is not refused]
        other = wait_for_job("other")
        with connected(server) as connection:
            for _ in range(3):
                connection.channel().basic_publish("", "t", b"x")
        for client in [*waiting, other]:
            assert client.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
