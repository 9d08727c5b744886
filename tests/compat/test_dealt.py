"""A cluster answers as one node does, whichever of its nodes a client reaches.

A part of the compatibility table is played through a proxy that deals each connection to another
node; `make compat-cluster` plays all of it. HTTP requests have the same answer at every node.
"""

from __future__ import annotations

import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import quote

import pytest

from tests.compat.case import Case
from tests.compat.cases import ALL
from tests.compat.client import Method, connect, is_method
from tests.compat.conftest import SLOW_S
from tests.compat.dealt import play_dealt, play_steadily
from tests.dealt_cluster import HOST, DealtCluster, dealt_cluster

pytestmark = pytest.mark.compiled_only("the table is played on one node in both forms")

# Topics in which several connections of a case meet, or in which the bytes themselves count.
WHOLE_TOPICS: Final = ("exclusive", "reply-to", "single-active", "framing", "handshake")
EVERY: Final = 8  # of the cases of all other topics
AT_ONCE: Final = 4
WITHIN_S: Final = 60.0


@pytest.fixture(scope="module")
def dealt() -> Iterator[DealtCluster]:
    with dealt_cluster() as found:
        yield found


def _chosen() -> list[Case]:
    quick = [case for case in ALL if case.wait_s < SLOW_S and case.premise_s is None]
    return [
        case
        for number, case in enumerate(quick)
        if case.id.partition("/")[0] in WHOLE_TOPICS or number % EVERY == 0
    ]


def test_cases_whose_connections_go_to_several_nodes(dealt: DealtCluster) -> None:
    cases = _chosen()
    assert len(cases) > 200
    with ThreadPoolExecutor(AT_ONCE) as pool:
        observed = list(pool.map(lambda case: play_dealt(case, dealt), cases))
    pairs = zip(cases, observed, strict=True)
    assert {case.id: found for case, found in pairs if found != case.expected} == {}


LOGIN: Final = f"Authorization: Basic {b64encode(b'guest:guest').decode()}"


def _request(line: str, *headers: str, body: str = "") -> bytes:
    head = [f"{line} HTTP/1.1", "Host: x", "Connection: close", *headers]
    if body and not any(header.startswith("Transfer-Encoding") for header in headers):
        head.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


QUEUE: Final = "/api/queues/%2F/dealt"
REQUESTS: Final = {
    "user": _request("GET /api/whoami", LOGIN),
    "old version": f"GET /api/whoami HTTP/1.0\r\n{LOGIN}\r\n\r\n".encode(),
    "no login": _request("GET /api/whoami"),
    "no login, of the cluster": _request("GET /api/cluster"),
    "no login, of a check": _request("GET /api/health/checks/alarms"),
    "no login, of rows": _request("GET /api/streams/%2F/none/batches"),
    "unknown path": _request("GET /api/nothing", LOGIN),
    "unknown queue": _request("GET /api/queues/%2F/nothing", LOGIN),
    "unknown stream": _request("GET /api/streams/%2F/nothing/batches", LOGIN),
    "unknown check": _request("GET /api/health/checks/nothing", LOGIN),
    "unknown method": _request("PATCH /api/queues", LOGIN),
    "wrong method": _request("POST /api/health", LOGIN),
    "check": _request("GET /api/health/checks/alarms", LOGIN),
    "check of the node": _request("GET /api/health/checks/local-alarms", LOGIN),
    "invalid check": _request("GET /api/health/checks/port-listener/none", LOGIN),
    "head": _request("HEAD /api/whoami", LOGIN),
    "head of a check": _request("HEAD /api/health/checks/alarms", LOGIN),
    "options": _request("OPTIONS /api/overview", LOGIN),
    "invalid body": _request(f"PUT {QUEUE}", LOGIN, body="{nope"),
    "definition": _request(f"PUT {QUEUE}", LOGIN, body="{}"),
    "deletion": _request(f"DELETE {QUEUE}", LOGIN),
    "chunks": _request(
        f"PUT {QUEUE}", LOGIN, "Transfer-Encoding: chunked", body="2\r\n{}\r\n0\r\n\r\n"
    ),
    "expectation": _request(f"PUT {QUEUE}", LOGIN, "Expect: 100-continue", body="{}"),
    "second deletion": _request(f"DELETE {QUEUE}", LOGIN),
    "two lengths": _request("GET /api/whoami", LOGIN, "Content-Length: 1", "Content-Length: 2"),
    "bare newlines": _request("GET /api/whoami", LOGIN).replace(b"\r", b""),
    "nonsense": b"nonsense\r\n\r\n",
    "amqp": b"AMQP\x00\x00\x09\x01",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "page": _request("GET /"),
}


def _answer(port: int, request: bytes) -> str:
    """Return the whole answer of a node, without the date."""
    answer = b""
    with socket.create_connection((HOST, port), WITHIN_S) as client:
        client.sendall(request)
        while data := client.recv(65_536):
            answer += data
    return re.sub("date: [^\r]*", "date: -", answer.decode("latin-1"))


def _answers(dealt: DealtCluster) -> dict[str, dict[str, str]]:
    """Ask each node everything, one after the other: a queue is deleted before the next one."""
    found: dict[str, dict[str, str]] = {name: {} for name in REQUESTS}
    for node in dealt.nodes.nodes:
        for name, request in REQUESTS.items():
            found[name][node] = _answer(dealt.nodes[node].http_port, request)
    return found


def test_http_has_the_same_answers_at_every_node(dealt: DealtCluster) -> None:
    found = play_steadily(dealt, lambda: _answers(dealt))
    answers = {name: list(by_node.values()) for name, by_node in found.items()}
    assert {name: all_of for name, all_of in answers.items() if len(set(all_of)) > 1} == {}
    assert [name for name, (text, *_) in answers.items() if not text.startswith("HTTP/1.1 ")] == []


def _connections_at_all_nodes(dealt: DealtCluster) -> None:
    """Connect through each node, find all connections at each node, and close them from another."""
    nodes = dealt.nodes
    ports = [nodes[name].amqp_port for name in nodes.nodes]
    connections = [connect(HOST, port) for port in ports]
    names = [
        f"{HOST}:{connection.socket.getsockname()[1]} -> {HOST}:{port}"
        for connection, port in zip(connections, ports, strict=True)
    ]
    for name in nodes.nodes:
        listed = _answer(nodes[name].http_port, _request("GET /api/connections", LOGIN))
        assert [each for each in names if f'"name":"{each}"' not in listed] == []
    for number, connection in enumerate(connections):
        other = nodes[nodes.nodes[number - 1]].http_port
        path = f"/api/connections/{quote(names[number], safe='')}"
        answer = _answer(other, _request(f"DELETE {path}", LOGIN, "X-Reason: moved"))
        assert answer.startswith("HTTP/1.1 204 ")
        close = connection.receive(0)
        assert is_method(close, "connection.close")
        assert isinstance(close, Method)
        assert close.fields["reply_code"] == 320
        assert "moved" in str(close.fields["reply_text"])
        connection.drop()


def test_connections_are_listed_and_closed_at_every_node(dealt: DealtCluster) -> None:
    play_steadily(dealt, lambda: _connections_at_all_nodes(dealt))
