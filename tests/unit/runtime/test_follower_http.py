"""HTTP on a node that follows: its own answers, and everything else from the leader."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leveret.cluster.errors import NotLeaderError
from leveret.cluster.relay import RelayHead
from leveret.config.settings import Settings
from leveret.http.framework.node import ClusterNodeFacts, Listener
from leveret.listening import Client
from leveret.runtime import follower_http
from leveret.runtime.follower_http import FollowerHttp
from leveret.runtime.public_listeners import Relayed

HEAD = RelayHead("http", "127.0.0.1", 1, "127.0.0.1", 2, is_local=True)


class _Paused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()


class _Node:
    """A node that follows a leader at an address, or nobody."""

    def __init__(self, leader: tuple[str, int] | None) -> None:
        self._leader = leader

    def facts(self) -> dict[str, Any]:
        return {"name": "b"}

    bound = (Listener("amqp", "127.0.0.1", 5672), Listener("http", "127.0.0.1", 15672))

    settings = Settings()

    def metrics(self) -> str:
        return "own 1\n"

    def nodes(self) -> list[ClusterNodeFacts]:
        """Return three nodes, one of which does not run."""
        return [ClusterNodeFacts(name, name == "a", True, name != "c", 0) for name in "abc"]

    def why_unwell(self) -> str:
        return "" if self._leader is not None else "no node leads the cluster"

    async def open_relay(self, head: RelayHead) -> Relayed:
        if self._leader is None:
            raise NotLeaderError(0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(_Paused, *self._leader)
        return transport, b""


async def _ask(node: _Node, request: bytes, *, is_local: bool = True) -> bytes:
    """Return everything that a node that follows answers, until it closes the connection."""
    client = Client("127.0.0.1", 1, is_local)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: FollowerHttp(node, client, HEAD), "127.0.0.1", 0)
    async with server, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for at in range(0, len(request), 7):  # in pieces, as a network may deliver them
            writer.write(request[at : at + 7])
            await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
    return answer


def _with_leader(answer: bytes, ask: Callable[[_Node], Awaitable[bytes]]) -> tuple[bytes, bytes]:
    """Run a leader that gives one answer to each request; return the request and the result."""

    async def scenario() -> tuple[bytes, bytes]:
        asked: list[bytes] = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            if b"Content-Length: 5" in asked[-1]:
                asked[-1] += await reader.readexactly(5)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            found = await ask(_Node(server.sockets[0].getsockname()))
        return asked[0] if asked else b"", found

    return asyncio.run(scenario())


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_health_is_the_nodes_own_answer() -> None:
    request = b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n"
    asked, found = _with_leader(OK, lambda node: _ask(node, request))
    assert asked == b""
    assert found.startswith(b"HTTP/1.1 200 ")
    assert found.endswith(b'{"status":"ok","node":"b"}')
    found = asyncio.run(_ask(_Node(None), request))
    assert found.startswith(b"HTTP/1.1 503 ")
    assert b"no node leads the cluster" in found


def test_other_requests_go_to_the_leader_one_for_each_connection() -> None:
    head = b"POST /api/x HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 5\r\n"
    request = head + b"\r\nhello"
    asked, found = _with_leader(OK, lambda node: _ask(node, request))
    assert asked.startswith(b"POST /api/x HTTP/1.1\r\nHost: x\r\n")
    assert b"keep-alive" not in asked
    assert b"\r\nConnection: close\r\n" in asked
    assert asked.endswith(b"\r\n\r\nhello")
    assert found == OK


@pytest.mark.parametrize("path", follower_http.JOB_PATHS)
def test_calls_of_the_jobs_api_keep_their_connection(path: str) -> None:
    request = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello".encode()
    asked, _ = _with_leader(OK, lambda node: _ask(node, request))
    assert asked == request


def test_request_without_a_leader_is_refused_with_the_reason() -> None:
    found = asyncio.run(_ask(_Node(None), b"GET /api/queues HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert found.startswith(b"HTTP/1.1 503 ")
    assert b"no node leads the cluster" in found


def test_cluster_is_shown_to_users_whom_the_leader_knows() -> None:
    request = b"GET /api/cluster HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eA==\r\n\r\n"
    asked, found = _with_leader(OK, lambda node: _ask(node, request))
    assert b"Authorization: Basic eA==" in asked
    assert found.endswith(b'{"name":"b"}')
    refused = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    _, found = _with_leader(refused, lambda node: _ask(node, request))
    assert found.startswith(b"HTTP/1.1 401 ")


def test_cluster_without_a_leader_is_shown_on_the_machine_only() -> None:
    request = b"GET /api/cluster HTTP/1.1\r\nHost: x\r\n\r\n"
    assert asyncio.run(_ask(_Node(None), request)).startswith(b"HTTP/1.1 200 ")
    found = asyncio.run(_ask(_Node(None), request, is_local=False))
    assert found.startswith(b"HTTP/1.1 503 ")


def test_malformed_and_endless_heads_are_refused() -> None:
    found = asyncio.run(_ask(_Node(None), b"nonsense\r\n\r\n"))
    assert found.startswith(b"HTTP/1.1 400 ")

    async def endless() -> bytes:
        client = Client("127.0.0.1", 1, True)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: FollowerHttp(_Node(None), client, HEAD), "127.0.0.1", 0
        )
        async with server, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * follower_http.HEAD_BYTES_MAX)
            answer = await reader.readuntil(b"\r\n\r\n")
            writer.transport.abort()
        return answer

    assert asyncio.run(endless()).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ("alarms", 200),
        ("port-listener/5672", 200),
        ("port-listener/5671", 503),
        ("protocol-listener/mqtt,amqp091", 200),
        ("protocol-listener/amqps", 503),
        ("node-is-quorum-critical", 503),
    ],
)
def test_health_checks_are_about_the_node_that_follows(check: str, status: int) -> None:
    request = f"GET /api/health/checks/{check} HTTP/1.1\r\n\r\n".encode()
    answer = asyncio.run(_ask(_Node(("127.0.0.1", 9)), request))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("is_local", [True, False])
def test_metrics_are_those_of_the_node_that_follows(is_local: bool) -> None:
    request = b"GET /metrics HTTP/1.1\r\n\r\n"
    answer = asyncio.run(_ask(_Node(None), request, is_local=is_local))
    if is_local:
        assert answer.endswith(b"\r\n\r\nown 1\n")
    else:  # only the leader knows the users
        assert answer.startswith(b"HTTP/1.1 503 ")
