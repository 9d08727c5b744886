"""The express lane: what it takes, what it leaves to h11, and that nobody can tell which it was."""

import pytest

from leveret.http.express import BODY_BYTES_MAX, HEADERS_MAX, maybe_head

PATHS = {b"/ack": None, b"/dequeue": None}
GET = b"GET /dequeue?topic=t HTTP/1.1\r\nHost: a\r\n"
POST = b"POST /ack HTTP/1.1\r\nHost: a\r\n"


def test_a_plain_call_is_taken_with_all_that_an_endpoint_asks_for() -> None:
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
        GET,  # not whole
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
def test_what_is_out_of_the_ordinary_is_left_to_h11(data: bytes) -> None:
    assert maybe_head(data, PATHS) is None
