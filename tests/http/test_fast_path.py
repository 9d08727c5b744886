"""The fast path: which requests it takes, and that its answers equal those of uvicorn."""

import json
import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.http.transport.fast_path import BODY_BYTES_MAX, HEADERS_MAX, maybe_head
from leveret.testing.broker import RunningBroker, broker

PATHS = {b"/ack": None, b"/dequeue": None}
GET = b"GET /dequeue?topic=t HTTP/1.1\r\nHost: a\r\n"
POST = b"POST /ack HTTP/1.1\r\nHost: a\r\n"


def test_plain_call_takes_the_fast_path_with_all_fields_of_a_request() -> None:
    head = maybe_head(GET + b"Authorization: Bearer x \r\nConnection: Keep-Alive\r\n\r\n", PATHS)
    assert head is not None
    assert (head.method, head.path, head.query) == ("GET", "/dequeue", b"topic=t")
    assert (b"authorization", b"Bearer x") in head.headers
    assert head.body_length == 0
    data = POST + b"Content-Length: 2\r\n\r\n{}"
    head = maybe_head(data, PATHS)
    assert head is not None
    assert (head.body_length, data[head.body_start :]) == (2, b"{}")


@pytest.mark.parametrize(
    "data",
    [
        GET,  # incomplete
        GET.replace(b"1.1", b"1.0") + b"\r\n",
        GET.replace(b"GET", b"HEAD") + b"\r\n",
        GET.replace(b"/dequeue", b"/other") + b"\r\n",
        GET.replace(b"/dequeue", b"http://a/dequeue") + b"\r\n",
        GET.replace(b"topic", b"t\x80pic") + b"\r\n",
        GET.replace(b" HTTP", b"  HTTP") + b"\r\n",
        GET.replace(b"Host: a\r\n", b"") + b"\r\n",
        GET + b"Host: b\r\n\r\n",
        GET + b" folded: x\r\n\r\n",
        GET + b"Bad Name: x\r\n\r\n",
        GET + b"NoColon\r\n\r\n",
        GET + b"Odd: a\x00b\r\n\r\n",
        GET + b"Odd: a\nEvil: b\r\n\r\n",
        GET + b"Odd: a\rb\r\n\r\n",
        GET + b"Connection: close\r\n\r\n",
        GET + b"Connection: upgrade\r\n\r\n",
        GET + b"Upgrade: websocket\r\n\r\n",
        GET + b"A: b\r\n" * HEADERS_MAX + b"\r\n",
        POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n",
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n",
        POST + b"Content-Length: +2\r\n\r\n",
        POST + b"Content-Length: 2, 2\r\n\r\n",
        POST + b"Content-Length : 2\r\n\r\n",
        POST + b"Content-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
    ],
)
def test_unusual_requests_are_left_to_uvicorn(data: bytes) -> None:
    assert maybe_head(data, PATHS) is None


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


class Peer:
    """A client that sends bytes and reads answers."""

    def __init__(self, server: RunningBroker) -> None:
        self.socket = socket.create_connection((server.host, server.http_port), 20)
        self._data = b""
        self._login = b64encode(b"guest:guest").decode()

    def request(self, method: str, path: str, body: bytes = b"", more: str = "") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {self._login}\r\n"
        return f"{head}{more}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        while b"\r\n\r\n" not in self._data:
            self._read()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(re.split(r": ?", line.lower(), maxsplit=1) for line in lines[1:])
        length = int(headers.get("content-length", 0))
        while len(self._data) < length:
            self._read()
        body, self._data = self._data[:length], self._data[length:]
        return int(lines[0].split()[1]), headers, body

    def _read(self) -> None:
        data = self.socket.recv(65536)
        assert data, "the connection was closed"
        self._data += data


@pytest.fixture
def peer(server: RunningBroker) -> Iterator[Peer]:
    found = Peer(server)
    yield found
    found.socket.close()


def items(topic: str, count: int = 1, payload: bytes = b"x") -> bytes:
    job = {"namespace": "lane", "topic": topic, "payload": b64encode(payload).decode()}
    return json.dumps([job] * count).encode()


def ready(peer: Peer, topic: str) -> list[Any]:
    peer.socket.sendall(peer.request("GET", f"/dequeue?namespace=lane&topic={topic}&limit=99"))
    found: list[Any] = json.loads(peer.answer()[2])
    return found


def test_answers_of_the_fast_path_equal_those_of_uvicorn(peer: Peer) -> None:
    """Refused requests and unknown paths are compared too."""
    for method, path, body in (
        ("GET", "/dequeue?namespace=lane&topic=none", b""),
        ("GET", "/dequeue?namespace=lane", b""),
        ("POST", "/enqueue", b"nonsense"),
        ("POST", "/ack", b"[]"),
        ("GET", "/enqueue", b""),
    ):
        peer.socket.sendall(peer.request(method, path, body))
        fast = peer.answer()
        # A request with an Expect header goes to uvicorn, even if the header has no effect.
        peer.socket.sendall(peer.request(method, path, body, "Expect: nothing\r\n"))
        usual = peer.answer()
        for _, headers, _ in (fast, usual):
            headers.pop("date")
        assert fast == usual, path


def test_body_may_come_in_pieces_and_a_split_head_goes_to_uvicorn(peer: Peer) -> None:
    data = peer.request("POST", "/enqueue", items("pieces"))
    for cut in (5, 40, len(data) - 10, len(data) - 1):
        peer.socket.sendall(data[:cut])
        peer.socket.sendall(data[cut:])
        status, _, body = peer.answer()
        assert (status, len(json.loads(body))) == (200, 1)
    for byte in data:
        peer.socket.sendall(bytes([byte]))
    assert peer.answer()[0] == 200
    assert len(ready(peer, "pieces")) == 5


def test_pipelined_requests_are_answered_in_order(peer: Peer) -> None:
    """Requests for the fast path and for uvicorn alternate; all are sent at once."""
    requests = [peer.request("POST", "/enqueue", items("line", n)) for n in (1, 2, 3)]
    version = peer.request("GET", "/api/version")
    chunked = peer.request("POST", "/enqueue").partition(b"Content-Length")[
        0
    ] + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(items("line", 4)),
        items("line", 4),
    )
    peer.socket.sendall(requests[0] + requests[1] + version + chunked + requests[2] + version)
    counts = []
    for _ in range(6):
        status, _, body = peer.answer()
        assert status == 200
        found = json.loads(body)
        counts.append(len(found) if isinstance(found, list) else found["product"])
    assert counts == [1, 2, "Leveret", 4, 3, "Leveret"]
    assert len(ready(peer, "line")) == 10


def test_body_too_large_for_the_fast_path_goes_to_uvicorn(peer: Peer) -> None:
    large = items("large", 1, b"x" * BODY_BYTES_MAX)
    peer.socket.sendall(peer.request("POST", "/enqueue", large))
    assert peer.answer()[0] == 200
    (job,) = ready(peer, "large")
    assert len(job["payload"]) > BODY_BYTES_MAX


def test_client_that_disconnects_while_waiting_leases_nothing(
    server: RunningBroker, peer: Peer
) -> None:
    gone = Peer(server)
    gone.socket.sendall(gone.request("GET", "/dequeue?namespace=lane&topic=gone&wait=30"))
    gone.socket.sendall(b"GET")  # when this waits, the fast path has the request before it
    gone.socket.close()
    # When the node answers this request, it has seen the earlier disconnect.
    peer.socket.sendall(peer.request("GET", "/dequeue?namespace=lane&topic=gone&wait=0.2"))
    assert json.loads(peer.answer()[2]) == []
    peer.socket.sendall(peer.request("POST", "/enqueue", items("gone")))
    assert peer.answer()[0] == 200
    assert len(ready(peer, "gone")) == 1


def test_requests_of_the_fast_path_are_counted(server: RunningBroker, peer: Peer) -> None:
    counts = server.node.view.metrics.requests.counts
    before = counts.get(("POST", 200), 0)
    peer.socket.sendall(peer.request("POST", "/enqueue", items("counted")))
    peer.answer()
    assert counts[("POST", 200)] == before + 1
