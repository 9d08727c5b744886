"""HTTP on a node that follows: its own answers, and everything else from the leader."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPResponse
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, patch

import pyarrow as pa
import pytest

from leveret.arrow.bulk_reads import BulkReads
from leveret.cluster.errors import NotLeaderError
from leveret.cluster.relay import RelayHead
from leveret.config.settings import Settings
from leveret.http.framework.node import ClusterNodeFacts, Listener
from leveret.http.transport.open_connections import open_connections
from leveret.listening import Client
from leveret.runtime import follower_http, leader_questions
from leveret.runtime.follower_http import FollowerHttp
from leveret.runtime.relays import Relayed, Relays
from leveret.storage.blocks import encode_head
from leveret.storage.file_names import segment_name
from tests.tls.certificates import TestAuthority
from tests.unit.arrow.chunks import NUMBER, Sent, chunks

WITHIN_S = 120.0
HEAD = RelayHead("http", "127.0.0.1", 1, "127.0.0.1", 2, is_local=True)


class _Paused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()


class _Node:
    """A node that follows a leader at an address, or nobody."""

    def __init__(self, leader: tuple[str, int] | None) -> None:
        self.leader = leader
        self.reads = BulkReads(None)
        self.relays = Relays()
        self.written_end = 0  # of the only stream
        self.http_connections = open_connections(self.settings)

    tls: ssl.SSLContext | None = None  # of links between nodes

    def stream_end(self, number: int) -> int:
        return self.written_end if number == NUMBER else 0

    def facts(self) -> dict[str, Any]:
        return {"name": "b", "state": "degraded"}

    def state(self) -> str:
        return "degraded"

    def certificates(self) -> list[tuple[str, int]]:
        return [("own.pem", 1_000)]

    def now_ms(self) -> int:
        return 0

    bound = (Listener("amqp", "127.0.0.1", 5672), Listener("http", "127.0.0.1", 15672))

    settings = Settings()

    disk_is_short = False

    def is_disk_short(self) -> bool:
        return self.disk_is_short

    slow_s = 0.0

    def slow_sync_s(self) -> float:
        return self.slow_s

    def metrics(self) -> str:
        return "own 1\n"

    def nodes(self) -> list[ClusterNodeFacts]:
        """Return three nodes, one of which does not run."""
        return [ClusterNodeFacts(name, name == "a", True, name != "c", 0) for name in "abc"]

    def why_unwell(self) -> str:
        return "" if self.leader is not None else "no node leads the cluster"

    async def open_relay(self, head: RelayHead) -> Relayed:
        if self.leader is None:
            raise NotLeaderError(0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(_Paused, *self.leader, ssl=self.tls)
        return transport, b""


async def _ask(node: _Node, request: bytes, *, is_local: bool = True, ends: bool = False) -> bytes:
    """Return everything that a node that follows answers, until it closes the connection."""
    client = Client("127.0.0.1", 1, is_local)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: FollowerHttp(node, client, HEAD), "127.0.0.1", 0)
    async with server, asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        size = max(7, len(request) // 100)
        for at in range(0, len(request), size):  # in pieces, as a network may deliver them
            writer.write(request[at : at + size])
            await asyncio.sleep(0)
        if ends:
            writer.write_eof()
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


def test_health_of_a_node_with_a_slow_disk_is_ok_and_says_so() -> None:
    node = _Node(("127.0.0.1", 1))
    node.slow_s = 0.25
    found = asyncio.run(_ask(node, b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert found.startswith(b"HTTP/1.1 200 ")
    assert found.endswith(b'"disk":"slow: a sync takes 250 ms"}')


@pytest.mark.parametrize(
    "path", ["/api/queues", "/api/cluster", "/api/health/checks/alarms", "/api/health", "/ack"]
)
def test_client_that_ends_its_side_gets_its_answer(path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    _, found = _with_leader(WELL, lambda node: _ask(node, request, ends=True))
    assert found.startswith(b"HTTP/1.1 200 ")


def test_question_to_a_leader_over_tls_leaves_nothing_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of the answer was a warning of asyncio, which nobody understands."""
    authority = TestAuthority(tmp_path)
    pair = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(WELL)
        writer.close()

    async def scenario() -> bytes:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
        async with server:
            node = _Node(server.sockets[0].getsockname())
            node.tls = authority.client_context()
            return await _ask(node, b"GET /api/cluster HTTP/1.1\r\nHost: x\r\n\r\n")

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 200 ")
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_client_that_ends_its_side_in_the_middle_of_a_head_is_disconnected() -> None:
    assert asyncio.run(_ask(_Node(None), b"GET /api/health HT", ends=True)) == b""


class _Broken(_Node):
    def metrics(self) -> str:
        raise RuntimeError("a bug")


def test_bug_ends_the_connection_and_not_the_node(caplog: pytest.LogCaptureFixture) -> None:
    assert asyncio.run(_ask(_Broken(None), b"HEAD /metrics HTTP/1.1\r\n\r\n")) == b""
    assert "a request of 127.0.0.1 failed: its connection is closed" in caplog.text


def _connect(node: _Node) -> tuple[FollowerHttp, MagicMock]:
    """Return a new connection of one address, and its transport."""
    transport = MagicMock()
    connection = FollowerHttp(node, Client("192.0.2.7", 1, False), HEAD)
    transport.abort.side_effect = lambda: connection.connection_lost(None)
    connection.connection_made(transport)
    return connection, transport


def test_address_with_too_many_connections_loses_the_idle_ones() -> None:
    """Nobody has logged in yet: unfinished heads must not fill the memory."""

    async def scenario() -> list[int]:
        node = _Node(None)
        node.http_connections = open_connections(Settings(http_connections_per_address_max=2))
        made = [_connect(node) for _ in range(4)]
        return [transport.abort.call_count for _, transport in made]

    assert asyncio.run(scenario()) == [1, 1, 0, 0]


def test_address_with_too_many_busy_connections_gets_no_more() -> None:
    async def scenario() -> tuple[int, int]:
        node = _Node(None)
        node.http_connections = open_connections(Settings(http_connections_per_address_max=1))
        busy, busy_transport = _connect(node)
        busy.data_received(b"GET /api/queues HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0)  # the request is being answered
        _, refused = _connect(node)
        before = busy_transport.abort.call_count, refused.abort.call_count
        busy.connection_lost(None)
        _, taken = _connect(node)
        assert not taken.abort.called
        return before

    assert asyncio.run(scenario()) == (0, 1)


def test_relayed_connections_are_counted_by_the_leader_alone() -> None:
    request = b"GET /api/queues HTTP/1.1\r\nHost: x\r\n\r\n"

    async def ask(node: _Node) -> bytes:
        node.http_connections = open_connections(Settings(http_connections_per_address_max=1))
        answers = [await _ask(node, request) for _ in range(3)]
        assert node.http_connections.enter("127.0.0.1", -1)
        return answers[-1]

    assert _with_leader(OK, ask)[1] == OK


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_health_is_the_nodes_own_answer() -> None:
    request = b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n"
    asked, found = _with_leader(OK, lambda node: _ask(node, request))
    assert asked == b""
    assert found.startswith(b"HTTP/1.1 200 ")
    assert found.endswith(b'{"status":"ok","node":"b","durability":"sync","cluster":"degraded"}')
    found = asyncio.run(_ask(_Node(None), request))
    assert found.startswith(b"HTTP/1.1 503 ")
    assert b"no node leads the cluster" in found


def test_a_head_in_many_small_pieces_costs_its_bytes_alone() -> None:
    """Nobody has logged in yet, and the loop belongs to the whole node."""

    async def scenario() -> float:
        transport = MagicMock()
        connection = FollowerHttp(_Node(None), Client("127.0.0.1", 1, False), HEAD)
        connection.connection_made(transport)
        began_s = time.thread_time()
        for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * (follower_http.HEAD_BYTES_MAX - 100):
            connection.data_received(bytes((byte,)))
        spent_s = time.thread_time() - began_s
        connection.connection_lost(None)
        assert not transport.pause_reading.called
        return spent_s

    assert asyncio.run(scenario()) < 10.0  # 0.1 s; more than 60 s if each piece searches all


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("bad", [b"\n\n", b"X: \0\r\n\r\n", b"X: a\nb\r\n\r\n"])
def test_what_is_no_head_goes_to_the_leader_however_it_is_cut(size: int, bad: bytes) -> None:
    request = b"GET /api/health HTTP/1.1\r\nHost: x\r\n" + bad

    async def scenario() -> bytes:
        node = _Node(None)
        answered = asyncio.Event()
        transport = MagicMock()
        transport.write.side_effect = lambda data: answered.set()
        connection = FollowerHttp(node, Client("127.0.0.1", 1, False), HEAD)
        connection.connection_made(transport)
        for at in range(0, len(request), size):
            connection.data_received(request[at : at + size])
        async with asyncio.timeout(WITHIN_S):
            await answered.wait()
        connection.connection_lost(None)
        return bytes(transport.write.call_args.args[0])

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 503 ")


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
    for request in (b"GET /api/queues HTTP/1.1\r\nHost: x\r\n\r\n", b"nonsense\r\n\r\n"):
        found = asyncio.run(_ask(_Node(None), request))
        assert found.startswith(b"HTTP/1.1 503 ")
        assert b"no node leads the cluster" in found


def test_cluster_is_shown_to_users_whom_the_leader_knows() -> None:
    request = b"GET /api/cluster HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eA==\r\n\r\n"
    asked, found = _with_leader(OK, lambda node: _ask(node, request))
    assert b"Authorization: Basic eA==" in asked
    assert found.endswith(b'{"name":"b","state":"degraded"}')
    refused = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\n\r\n{}"
    _, found = _with_leader(refused, lambda node: _ask(node, request))
    assert found == refused


def test_cluster_without_a_leader_is_shown_on_the_machine_only() -> None:
    request = b"GET /api/cluster HTTP/1.1\r\nHost: x\r\n\r\n"
    assert asyncio.run(_ask(_Node(None), request)).startswith(b"HTTP/1.1 200 ")
    found = asyncio.run(_ask(_Node(None), request, is_local=False))
    assert found.startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a client that speaks TLS
        b"GET /api/health HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * follower_http.HEAD_BYTES_MAX,
    ],
    ids=["nonsense", "amqp", "tls", "bare-newlines", "endless"],
)
def test_malformed_and_endless_heads_are_refused_by_the_leader(request_bytes: bytes) -> None:
    async def scenario() -> tuple[bytes, bytes]:
        asked: list[bytes] = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readexactly(len(request_bytes)))
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            found = await _ask(_Node(server.sockets[0].getsockname()), request_bytes)
        return asked[0], found

    assert asyncio.run(scenario()) == (request_bytes, b"HTTP/1.1 400 Bad Request\r\n\r\n")


ALARM = (
    b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
    b'{"status":"failed","reason":"low on memory","alarms":[{"node":"a","resource":"memory"}]}'
)
NO_SUCH_CHECK = b'HTTP/1.1 404 Not Found\r\n\r\n{"error":"Object Not Found","reason":"Not Found"}'
WELL = b'HTTP/1.1 200 OK\r\n\r\n{"status":"ok"}'


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ("local-alarms", 200),
        ("port-listener/5672", 200),
        ("port-listener/5671", 503),
        ("protocol-listener/mqtt,amqp091", 200),
        ("protocol-listener/amqps", 503),
        ("node-is-quorum-critical", 503),
        ("certificate-expiration/1/days", 503),
    ],
)
@pytest.mark.parametrize("leader_says", [WELL, ALARM], ids=["well", "unwell"])
def test_health_checks_of_a_node_are_about_the_node_that_follows(
    check: str, status: int, leader_says: bytes
) -> None:
    request = f"GET /api/health/checks/{check} HTTP/1.1\r\n\r\n".encode()
    _, answer = _with_leader(leader_says, lambda node: _ask(node, request))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(
    ("own", "leader_says", "status"),
    [
        (ClusterNodeFacts("b", False, True, True, 0), WELL, 200),
        (ClusterNodeFacts("b", False, True, True, 0), ALARM, 503),
        (ClusterNodeFacts("b", False, True, True, 0, can_write=False), ALARM, 200),
        (ClusterNodeFacts("b", False, False, True, 0), ALARM, 200),
    ],
    ids=["none has a full disk", "another disk is full", "this disk is full", "it has no vote"],
)
def test_the_leader_knows_whether_a_full_disk_makes_a_node_critical(
    own: ClusterNodeFacts, leader_says: bytes, status: int
) -> None:
    class AllRun(_Node):
        def nodes(self) -> list[ClusterNodeFacts]:
            others = [ClusterNodeFacts(name, name == "a", True, True, 0) for name in "acd"]
            return [*others, own]

    async def ask(node: _Node) -> bytes:
        request = b"GET /api/health/checks/node-is-quorum-critical HTTP/1.1\r\n\r\n"
        return await _ask(AllRun(node.leader), request)

    _, answer = _with_leader(leader_says, ask)
    assert answer.startswith(b"HTTP/1.1 %d " % status)


def test_full_disk_of_the_node_that_follows_is_its_alarm() -> None:
    class Full(_Node):
        disk_is_short = True

    async def ask(node: _Node) -> bytes:
        request = b"GET /api/health/checks/local-alarms HTTP/1.1\r\n\r\n"
        return await _ask(Full(node.leader), request)

    _, answer = _with_leader(WELL, ask)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.endswith(b'"alarms":[{"node":"b","resource":"disk space"}]}')


@pytest.mark.parametrize(
    ("check", "leader_says"),
    [
        ("alarms", ALARM),
        ("reached-target-cluster-size", ALARM),
        ("nothing", NO_SUCH_CHECK),
        ("port-listener/named", WELL),  # by a leader that knows names of ports
        ("port-listener/nothing", b'HTTP/1.1 400 Bad Request\r\n\r\n{"error":"Invalid port"}'),
        ("local-alarms", b'HTTP/1.1 401 Unauthorized\r\n\r\n{"error":"not_authorized"}'),
    ],
)
def test_other_health_checks_have_the_answer_of_the_leader(check: str, leader_says: bytes) -> None:
    request = f"GET /api/health/checks/{check} HTTP/1.1\r\nAuthorization: Basic eA==\r\n\r\n"
    asked, answer = _with_leader(leader_says, lambda node: _ask(node, request.encode()))
    assert b"Authorization: Basic eA==" in asked
    assert answer == leader_says


def test_health_checks_without_a_leader_say_why_they_fail() -> None:
    request = b"GET /api/health/checks/alarms HTTP/1.1\r\n\r\n"
    answer = asyncio.run(_ask(_Node(None), request))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.endswith(b'{"status":"failed","reason":"no node leads the cluster"}')


OWN_PATHS = (
    "/api/cluster",
    "/api/health/checks/alarms",
    "/metrics",
    "/api/streams/%2F/s/batches?from=0&to=5",
)
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("path", OWN_PATHS)
@pytest.mark.parametrize("header", ["X-Forwarded-For: 192.0.2.7", "forwarded: for=x", "VIA: y"])
def test_leader_learns_that_a_proxy_passed_a_question_on(path: str, header: str) -> None:
    """Behind a proxy on this machine the login guest/guest must not be right."""
    lines = f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\nAuthorization: Basic eA==\r\n\r\n"
    asked, found = _with_leader(REFUSED, lambda node: _ask(node, lines.encode()))
    assert header.encode() in asked
    assert found.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", [*OWN_PATHS, "/api/health"])
def test_local_request_under_a_foreign_name_is_left_to_the_leader(path: str) -> None:
    """A page that lets its own name point to this machine must learn nothing."""
    request = f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode()
    asked, found = _with_leader(REFUSED, lambda node: _ask(node, request))
    assert b"\r\nHost: evil.example\r\n" in asked
    assert found.startswith(b"HTTP/1.1 401 ")


def test_cluster_without_a_leader_is_not_shown_through_a_proxy() -> None:
    request = b"GET /api/cluster HTTP/1.1\r\nHost: x\r\nX-Real-IP: 192.0.2.7\r\n\r\n"
    assert asyncio.run(_ask(_Node(None), request)).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("path", ["/api/health", "/api/health/checks/alarms", "/metrics"])
def test_answers_to_head_have_no_body(path: str) -> None:
    request = f"HEAD {path} HTTP/1.1\r\n\r\n".encode()
    for leader_says in (WELL, ALARM):
        _, answer = _with_leader(leader_says, lambda node: _ask(node, request))
        assert answer.startswith(b"HTTP/1.1 ")
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("is_local", [True, False])
def test_metrics_are_those_of_the_node_that_follows(is_local: bool) -> None:
    request = b"GET /metrics HTTP/1.1\r\n\r\n"
    answer = asyncio.run(_ask(_Node(None), request, is_local=is_local))
    if is_local:
        assert answer.endswith(b"\r\n\r\nown 1\n")
    else:  # only the leader knows the users
        assert answer.startswith(b"HTTP/1.1 503 ")


ROWS = 500
SEGMENTS = (
    f'{{"number":{NUMBER},"stream_first":0,"stream_end":{ROWS},"user":"guest","segments":[],'
    '"known_offset":0,"known_place":0}'
).encode()
BATCHES = b"GET /api/streams/%2F/s/batches?from=3&columns=offset,body HTTP/1.1\r\nHost: x\r\n\r\n"


def _write_segment(folder: Path, more: bytes = b"") -> Path:
    rows = [Sent(b"body %d" % number + more) for number in range(ROWS)]
    made = chunks(*(rows[at : at + 100] for at in range(0, ROWS, 100)))
    path = folder / segment_name(NUMBER, 0)
    path.write_bytes(encode_head(NUMBER) + b"".join(made))
    return path


def _read_streams(
    folder: Path, act: Callable[[_Node, list[str]], Awaitable[None]], answer: bytes = SEGMENTS
) -> None:
    """Run a follower whose leader says what it knows about a stream, and answers reads by `ok`.

    `act` gets the follower, and the list of what the leader was asked.
    """

    async def scenario() -> None:
        asked: list[str] = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
            if "/segments?" in asked[-1] and answer.startswith(b"{"):
                length = len(answer)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + answer)
            else:
                writer.write(OK if answer.startswith(b"{") else answer)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            node = _Node(server.sockets[0].getsockname())
            node.settings = Settings(data=folder)
            node.written_end = ROWS
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(node.reads.stop)
                await act(node, asked)

    # On a busy machine the process that encodes may take long to start.
    with patch.object(leader_questions, "ASK_S", WITHIN_S):
        asyncio.run(scenario())


def _table(answer: bytes) -> pa.Table:
    """Return the rows of an HTTP answer."""
    whole = SimpleNamespace(makefile=lambda mode: BytesIO(answer))
    response = HTTPResponse(cast(Any, whole))
    response.begin()
    assert response.status == 200
    return pa.ipc.open_stream(response.read()).read_all()


def test_rows_of_a_stream_come_from_the_segments_of_the_node(tmp_path: Path) -> None:
    path = _write_segment(tmp_path)

    async def act(node: _Node, asked: list[str]) -> None:
        table = _table(await _ask(node, BATCHES))
        assert table["offset"].to_pylist() == list(range(3, ROWS))
        assert table["body"].to_pylist() == [b"body %d" % number for number in range(3, ROWS)]
        assert asked == ["/api/streams/%2F/s/segments?from=3&to=3"]
        node.written_end = ROWS - 1  # the node is behind
        assert await _ask(node, BATCHES) == OK
        node.written_end = ROWS
        damaged = bytearray(path.read_bytes())
        damaged[-1] ^= 1
        path.write_bytes(damaged)
        assert await _ask(node, BATCHES) == OK
        assert asked[2::2] == ["/api/streams/%2F/s/batches?from=3&columns=offset,body"] * 2

    _read_streams(tmp_path, act)


def test_client_that_does_not_read_rows_is_broken_off(tmp_path: Path) -> None:
    _write_segment(tmp_path, bytes(50_000))  # more than the buffers on the way hold

    async def act(node: _Node, asked: list[str]) -> None:
        node.reads.stall_s = 0.1
        client = Client("127.0.0.1", 1, True)
        ended = asyncio.Event()

        class Noted(FollowerHttp):
            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                ended.set()

        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Noted(node, client, HEAD), "127.0.0.1", 0)
        async with server, asyncio.timeout(WITHIN_S):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(BATCHES)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await ended.wait()
            assert node.reads.open_count == 0
            with contextlib.suppress(ConnectionError):
                assert not (await reader.read()).endswith(b"0\r\n\r\n")
            writer.close()

    _read_streams(tmp_path, act)


def test_login_that_the_leader_refuses_is_tried_once(tmp_path: Path) -> None:
    refused = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 2\r\n\r\n{}"

    async def act(node: _Node, asked: list[str]) -> None:
        assert await _ask(node, BATCHES) == refused
        assert len(asked) == 1

    _read_streams(tmp_path, act, refused)


def test_answer_of_a_leader_that_does_not_know_the_question_is_relayed(tmp_path: Path) -> None:
    async def act(node: _Node, asked: list[str]) -> None:
        assert await _ask(node, BATCHES) == OK
        assert len(asked) == 2

    _read_streams(tmp_path, act, b'{"number": 7, "segments": []}')
