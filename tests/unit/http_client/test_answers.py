"""Requests are encoded, and answers are read however their bytes are cut."""

import pytest

from leveret.http_client.address import parse_address
from leveret.http_client.answers import BODY_BYTES_MAX, HEAD_BYTES_MAX, Answer, AnswerReader
from leveret.http_client.errors import BadAnswerError
from leveret.http_client.requests import RequestEncoder

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
    assert (plain.status, plain.body, plain.is_reusable) == (200, b"hello", True)
    assert plain.headers["x-odd"] == "a:b"
    assert (chunked.status, chunked.body, chunked.is_reusable) == (207, b"hello", True)


def test_an_interim_answer_is_passed_over() -> None:
    assert read(b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, 1).body == b"hello"


def test_a_connection_is_not_used_again_where_more_came_or_its_end_is_told() -> None:
    closing = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert read(closing, 1000).is_reusable is False
    reader = AnswerReader()
    answer = reader.feed(PLAIN + b"HTTP/1.1 200")
    assert answer is not None
    assert (answer.body, answer.is_reusable) == (b"hello", False)


def test_an_answer_without_a_body_ends_with_its_head() -> None:
    assert read(b"HTTP/1.1 204 No Content\r\n\r\n", 5).body == b""


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2xx\r\n\r\n",
        b"HTTP/1.1 \xb2\xb3\xb9\r\n\r\n",  # digits in a raised position
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n",
        b"x" * (HEAD_BYTES_MAX + 1),
    ],
)
def test_bytes_that_are_not_http_or_too_large_are_refused(data: bytes) -> None:
    with pytest.raises(BadAnswerError):
        AnswerReader().feed(data)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nhel") is None
    assert reader.feed(b"lo") is None
    answer = reader.feed_end()
    assert answer is not None
    assert (answer.reason, answer.body, answer.is_reusable) == ("OK", b"hello", False)


def test_the_end_of_the_connection_does_not_end_a_body_with_a_length() -> None:
    reader = AnswerReader()
    assert reader.feed(PLAIN[:-1]) is None
    assert reader.feed_end() is None


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, b"HTTP/1.1 200 OK\r\n\r\nhello"])
def test_a_body_over_the_limit_is_cut_off_where_that_is_asked_for(data: bytes) -> None:
    answer = AnswerReader(3, cuts=True).feed(data)
    assert answer is not None
    assert (answer.body, answer.is_reusable) == (b"hel", False)


def test_a_connection_of_http_1_0_is_kept_only_where_the_server_says_so() -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n"
    assert read(head + b"\r\n", 1000).is_reusable is False
    assert read(head + b"Connection: Keep-Alive\r\n\r\n", 1000).is_reusable is True


def test_a_request_has_the_token_and_the_length_of_its_body() -> None:
    address = parse_address("http://ann:secret@host:1/jobs/")
    requests = RequestEncoder(address, token="abc", user_agent="leveret-jobs")
    assert requests.encode("POST", "/ack", b"[]") == (
        b"POST /jobs/ack HTTP/1.1\r\nHost: host:1\r\nAccept: application/json\r\n"
        b"User-Agent: leveret-jobs\r\nAuthorization: Bearer abc\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
    )
    assert b"Content" not in requests.encode("GET", "/stats", None)


def test_the_login_of_the_address_is_sent_where_there_is_no_token() -> None:
    requests = RequestEncoder(parse_address("http://ann:se%20cret@host"))
    assert b"Authorization: Basic YW5uOnNlIGNyZXQ=\r\n" in requests.encode("GET", "/")


def test_given_headers_replace_our_own_but_not_the_length() -> None:
    given = {"user-agent": "mine", "Content-Type": "text/plain", "content-length": "99"}
    request = RequestEncoder(parse_address("http://host")).encode("POST", "/", b"abc", given)
    assert request.count(b"ser-") == 1
    assert b"user-agent: mine\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n" in request


def test_a_body_in_pieces_is_sent_in_chunks() -> None:
    requests = RequestEncoder(parse_address("http://host"))
    sent = b"".join(requests.encode_chunked("POST", "/in", [b"hello", b"", b"!"]))
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.endswith(b"Transfer-Encoding: chunked")
    assert body == b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"


def test_a_token_cannot_smuggle_a_header() -> None:
    with pytest.raises(ValueError, match="no header may have"):
        RequestEncoder(parse_address("http://host"), token="abc\r\nX-Evil: 1")


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http:///path", "http://host:port"])
def test_a_text_that_is_not_an_http_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        parse_address(url)
