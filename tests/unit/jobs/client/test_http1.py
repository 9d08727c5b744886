"""Requests as bytes, and answers from bytes however they are cut."""

from urllib.parse import urlsplit

import pytest

from leveret.jobs.client.errors import BadAnswerError
from leveret.jobs.client.http1 import BODY_BYTES_MAX, HEAD_BYTES_MAX, Answer, AnswerReader, Requests

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Odd:  a:b \r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 207 Multi-Status\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;note=1\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
)


def read(data: bytes, step: int) -> Answer:
    reader = AnswerReader()
    for start in range(0, len(data), step):
        answer = reader.feed(data[start : start + step])
        if answer is not None:
            assert start + step >= len(data), "whole too early"
            return answer
    raise AssertionError("never whole")


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_an_answer_is_the_same_however_it_is_cut(step: int) -> None:
    plain, chunked = read(PLAIN, step), read(CHUNKED, step)
    assert (plain.status, plain.body, plain.keeps) == (200, b"hello", True)
    assert plain.headers["x-odd"] == "a:b"
    assert (chunked.status, chunked.body, chunked.keeps) == (207, b"hello", True)


def test_an_interim_answer_is_passed_over() -> None:
    assert read(b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, 1).body == b"hello"


def test_a_connection_is_not_used_again_where_more_came_or_its_end_is_told() -> None:
    closing = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert read(closing, 1000).keeps is False
    reader = AnswerReader()
    answer = reader.feed(PLAIN + b"HTTP/1.1 200")
    assert answer is not None
    assert (answer.body, answer.keeps) == (b"hello", False)


def test_an_answer_without_a_body_ends_with_its_head() -> None:
    assert read(b"HTTP/1.1 204 No Content\r\n\r\n", 5).body == b""


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2xx\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n",
        b"x" * (HEAD_BYTES_MAX + 1),
    ],
)
def test_what_is_no_answer_or_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(BadAnswerError):
        AnswerReader().feed(data)


def test_a_request_has_the_token_and_the_length_of_its_body() -> None:
    requests = Requests(urlsplit("http://ann:secret@host:1/jobs/"), "abc")
    assert requests.encode("POST", "/ack", b"[]") == (
        b"POST /jobs/ack HTTP/1.1\r\nHost: host:1\r\nAccept: application/json\r\n"
        b"User-Agent: leveret-jobs\r\nAuthorization: Bearer abc\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
    )
    assert b"Content" not in requests.encode("GET", "/stats", None)


def test_a_token_cannot_smuggle_a_header() -> None:
    with pytest.raises(ValueError, match="no header may have"):
        Requests(urlsplit("http://host"), "abc\r\nX-Evil: 1")
