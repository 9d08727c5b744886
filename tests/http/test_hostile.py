"""Requests that no honest client sends: each is refused, and costs the broker little."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from leveret.auth.user import NAME_LENGTH_MAX
from leveret.http.framework import operations
from leveret.http.transport import http_connection
from leveret.http.transport.http_connection import (
    FRAMING_BYTES_MAX,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    PIPELINED_MAX,
)
from leveret.runtime import loop_watch
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, ask_whole
from tests.http.management import Api

WITHIN_S = 60
GUEST = b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
CHUNKED = (
    b"PUT /api/vhosts/v HTTP/1.1\r\nHost: localhost\r\n"
    + GUEST
    + b"Transfer-Encoding: chunked\r\n\r\n"
)
HEALTH = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as running:
        yield running
        assert ask(running, "GET", "/api/health")[0] == 200


def answer(server: RunningBroker, *pieces: bytes) -> bytes:
    """Send all pieces, and return the bytes until the broker closes the connection."""
    with socket.create_connection((server.host, server.http_port), WITHIN_S) as client:
        found = b""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                client.sendall(piece)
            while data := client.recv(65_536):
                found += data
        return found


def status(found: bytes) -> bytes:
    return found[9:12]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged, except that a busy machine has held the event loop up."""
    return [each.message for each in caplog.records if each.name != loop_watch.log.name]


def test_head_over_the_limit_is_refused(server: RunningBroker) -> None:
    assert status(answer(server, HEALTH, b"X: " + b"a" * HEAD_BYTES_MAX)) in (b"400", b"")


@pytest.mark.parametrize("target", [b"CONNECT 127.0.0.1:22", b"CONNECT :", b"GET ?x"])
def test_a_request_with_an_unreadable_target_is_refused(
    server: RunningBroker, target: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    request = target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert status(answer(server, request)) in (b"400", b"404")
    assert "Traceback" not in caplog.text


def test_too_many_headers_are_refused(server: RunningBroker) -> None:
    found = answer(server, HEALTH, b"a:b\r\n" * HEADERS_MAX, b"\r\n")
    assert status(found) == b"431"
    assert b"more than 256 headers" in found


@pytest.mark.parametrize(
    "rest",
    [
        b"1;" + b"e" * (FRAMING_BYTES_MAX + HEAD_BYTES_MAX),
        b"2\r\n{}\r\n0\r\nX: " + b"t" * (FRAMING_BYTES_MAX + HEAD_BYTES_MAX),
        b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * FRAMING_BYTES_MAX,
    ],
    ids=["extension", "trailer", "trailers"],
)
def test_endless_framing_of_a_body_is_cut_off(server: RunningBroker, rest: bytes) -> None:
    found = answer(server, CHUNKED, rest, rest)
    assert status(found) in (b"", b"400", b"201", b"204")


def test_endless_trailers_after_a_refusal_are_cut_off(server: RunningBroker) -> None:
    head = b"PUT /api/vhosts/v HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    rest = [b"0\r\nX: ", *[b"t" * 65_536] * 64]
    assert status(answer(server, head, *rest)) in (b"401", b"")


def test_body_in_tiny_chunks_with_trailers_is_taken(server: RunningBroker) -> None:
    body = b"{" + b" " * 20_000 + b"}"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    last = b"0\r\nX-Trailer: y\r\n\r\n" + HEALTH + b"Connection: close\r\n\r\n"
    found = answer(server, CHUNKED, chunks, last)
    assert status(found) in (b"201", b"204")
    assert b'"status":"ok"' in found


def test_client_may_not_pipeline_without_end(server: RunningBroker) -> None:
    found = answer(server, (HEALTH + b"\r\n") * (20 * PIPELINED_MAX))
    assert found.count(b"HTTP/1.1 200") <= 2 * PIPELINED_MAX


def test_some_pipelined_requests_are_all_answered(server: RunningBroker) -> None:
    last = HEALTH + b"Connection: close\r\n\r\n"
    found = answer(server, (HEALTH + b"\r\n") * (PIPELINED_MAX // 2) + last)
    assert found.count(b"HTTP/1.1 200") == PIPELINED_MAX // 2 + 1


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c", b"TLS/1.0"])
def test_other_protocols_are_ignored_and_the_connection_ends(
    server: RunningBroker, protocol: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    found = answer(server, HEALTH + b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\n\r\n")
    assert status(found) == b"200"
    assert b"connection: close" in found
    assert logged(caplog) == []


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /enqueue HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12",
        b"POST /enqueue HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /enqueue HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
        b"GET /api/hea\x00lth HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_malformed_request_is_refused_and_not_logged(
    server: RunningBroker, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert status(answer(server, request_)) == b"400"
    assert logged(caplog) == []


def test_client_of_another_protocol_is_told_and_logged_once(
    server: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        answered = answer(server, b"AMQP\x00\x00\x09\x01")
        assert status(answered) == b"400"
        assert answered.endswith(b"the client speaks AMQP on http_port: connect it to amqp_port")
    assert status(answer(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")) == b"400"
    spoken = [each.rpartition("the client speaks ")[2].split()[0] for each in logged(caplog)]
    assert spoken == ["AMQP", "TLS"]


def test_slow_body_is_refused(server: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "BODY_S", 0.1)
    head = b"PUT /api/vhosts/v HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n" + GUEST
    found = answer(server, head + b"\r\n{")
    assert status(found) == b"408"
    assert b"too slowly" in found


def test_client_that_does_not_read_its_answers_is_disconnected(
    server: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "UNREAD_S", 0.1)
    count = PIPELINED_MAX // 2
    size = len(ask_whole(server, "GET", "/docs")[1])
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(WITHIN_S)
        client.connect((server.host, server.http_port))
        client.sendall(b"GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n" * count)
        with contextlib.suppress(ConnectionError):
            while True:  # until the broker gives up, without reading a byte
                client.sendall(b"\r\n")
        found = 0
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65_536):
                found += len(data)
    assert found < count * size


def test_user_name_that_nobody_can_have_is_not_kept(server: RunningBroker) -> None:
    login = "x" * 40_000 + ":y"
    assert ask(server, "GET", "/api/whoami", login=login)[0] == 401
    assert Api(server).get("audit?limit=1")[0]["user"] == "x" * NAME_LENGTH_MAX + "…"


@pytest.mark.parametrize("path", ["/", "/docs", "/api/version", "/api/whoami", "/nothing"])
def test_browsers_may_not_guess_the_type_of_an_answer(server: RunningBroker, path: str) -> None:
    headers = ask_whole(server, "GET", path)[2]
    assert headers.get_all("X-Content-Type-Options") == ["nosniff"]


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_run_no_foreign_scripts_and_have_no_frame(server: RunningBroker, path: str) -> None:
    policy = ask_whole(server, "GET", path)[2]["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy.replace("style-src 'unsafe-inline'", "")
