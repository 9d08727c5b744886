"""An answer is read piece by piece from a socket, however its body is framed."""

import socket
import threading

import pytest

from leveret.http_client.errors import BadAnswerError, CallTimeoutError, UnreachableError
from leveret.http_client.streamed_answer import StreamedAnswer

BODY = bytes(range(256)) * 4096  # more than one read of the socket
HEAD = b"HTTP/1.1 200 Fine\r\nX-A: 1\r\n"


def chunks(*sizes: int) -> bytes:
    """Return BODY in chunks of these sizes, the rest in one."""
    parts, start = [], 0
    for size in (*sizes, len(BODY) - sum(sizes)):
        parts.append(b"%x;note=1\r\n%b\r\n" % (size, BODY[start : start + size]))
        start += size
    return b"".join(parts) + b"0\r\n\r\n"


def read_all(data: bytes) -> tuple[StreamedAnswer, bytes]:
    """Return the answer of a server that sends `data` and closes, and the whole body."""
    ours, theirs = socket.socketpair()
    ours.settimeout(60)

    def send() -> None:
        with theirs:
            theirs.sendall(data)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    with ours:
        answer = StreamedAnswer(ours, "here")
        first = answer.body.read(10)
        body = first + answer.body.read()
        assert answer.body.read() == b""
    sender.join(60)
    return answer, body


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
        HEAD + b"\r\n" + BODY,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks(1, 2, 65536, 300_000),
    ],
    ids=["length", "close", "chunks"],
)
def test_a_body_is_the_same_however_it_is_framed(data: bytes) -> None:
    answer, body = read_all(data)
    assert (answer.status, answer.reason, answer.headers["x-a"]) == (200, "Fine", "1")
    assert body == BODY


def test_an_empty_body_is_at_its_end() -> None:
    assert read_all(b"HTTP/1.1 204 No Content\r\n\r\n")[1] == b""


@pytest.mark.parametrize(
    "data",
    [
        HEAD,
        HEAD + b"Content-Length: 6\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
)
def test_a_connection_that_ends_too_early_is_an_error(data: bytes) -> None:
    with pytest.raises(UnreachableError):
        read_all(data)


def test_a_chunk_longer_than_its_size_is_an_error() -> None:
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n"
    with pytest.raises(BadAnswerError):
        read_all(data)


def test_silence_is_an_error_after_the_timeout() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        with pytest.raises(CallTimeoutError):
            StreamedAnswer(ours, "here")
