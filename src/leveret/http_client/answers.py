"""Answers from bytes: one `AnswerReader` is fed bytes until its answer is whole.

It knows no sockets, so that both kinds of connection share it. It costs a fraction of the CPU of
`http.client`, which parses headers as an e-mail.

The body of an answer

    has a length          Content-Length
    or comes in chunks    Transfer-Encoding: chunked
    or ends with the connection

A body over the limit is an error, or is cut off where the caller asks for that.
"""

from functools import lru_cache
from typing import Final

from leveret.http_client.errors import BadAnswerError

HEAD_BYTES_MAX: Final = 64 * 1024
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
CHUNK_LINE_BYTES_MAX: Final = 4_096
INTERIM_MAX: Final = 16  # answers such as 100 Continue at a time
_LENGTH_DIGITS_MAX: Final = 18
CHUNKED: Final = -1
UNTIL_CLOSE: Final = -2
_END_OF_HEAD: Final = b"\r\n\r\n"
# A server repeats the same head for a second, as long as its Date: a cache keeps the parsed ones.
_CACHED_HEADS: Final = 64
_CACHED_BYTES_MAX: Final = 1_024
_WITHOUT_BODY: Final = (204, 304)


class Answer:
    """A whole answer. Names of headers are in lower case."""

    __slots__ = ("body", "headers", "is_reusable", "reason", "status")

    def __init__(
        self, status: int, reason: str, headers: dict[str, str], body: bytes, is_reusable: bool
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.body = body
        self.is_reusable = is_reusable  # whether the connection can take another request


class AnswerHead:
    """Status line and headers of an answer. Several answers may share one: nothing changes it."""

    __slots__ = ("headers", "is_kept_open", "length", "reason", "status")

    def __init__(self, lines: list[str]) -> None:
        self.status, self.reason = _read_status(lines[0])
        self.headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self.length = _body_length(self.status, self.headers)  # or CHUNKED, or UNTIL_CLOSE
        connection = self.headers.get("connection", "").lower()
        is_http_1_0 = lines[0].startswith("HTTP/1.0")
        self.is_kept_open = connection == "keep-alive" if is_http_1_0 else connection != "close"


def _head(text: bytes) -> AnswerHead:
    return AnswerHead(text.decode("latin-1").split("\r\n"))


_cached_head: Final = lru_cache(_CACHED_HEADS)(_head)


def maybe_take_head(data: bytearray) -> AnswerHead | None:
    """Take the head of an answer off `data`; None until it is whole."""
    for _ in range(INTERIM_MAX):
        end = data.find(_END_OF_HEAD)
        if end < 0 or end > HEAD_BYTES_MAX:
            if len(data) > HEAD_BYTES_MAX:
                raise BadAnswerError(f"the head of the answer exceeds {HEAD_BYTES_MAX} bytes")
            return None
        text = bytes(data[:end])
        del data[: end + len(_END_OF_HEAD)]
        head = _cached_head(text) if end <= _CACHED_BYTES_MAX else _head(text)
        if head.status >= 200:  # the answer follows after 100 Continue and the like
            return head
    raise BadAnswerError("the server sends interim answers and no final one")


def maybe_read_chunk_size(data: bytearray) -> tuple[int, int] | None:
    """Return the size of the next chunk and where its bytes begin; None until the line is whole."""
    end = data.find(b"\r\n")
    if end < 0:
        if len(data) > CHUNK_LINE_BYTES_MAX:
            raise BadAnswerError("the answer comes in chunks that cannot be read")
        return None
    digits = bytes(data[:end]).partition(b";")[0].strip()
    if not digits or digits.translate(None, b"0123456789abcdefABCDEF"):
        raise BadAnswerError("the answer comes in chunks that cannot be read")
    return int(digits, 16), end + 2


class AnswerReader:
    """Collects the bytes of one answer.

    `cuts`: a body over `body_bytes_max` is cut off there, and its connection is not used again.
    """

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX, *, cuts: bool = False) -> None:
        self._body_bytes_max = body_bytes_max
        self._cuts = cuts
        self._data = bytearray()
        self._head: AnswerHead | None = None
        self._body = bytearray()  # of chunks

    def feed(self, data: bytes) -> Answer | None:
        """Return the answer when it is whole. BadAnswerError: it is not HTTP, or is too large."""
        if self._head is None and not self._data:
            answer = self._maybe_whole(data)
            if answer is not None:
                return answer
        self._data += data
        if self._head is None:
            self._head = maybe_take_head(self._data)
            if self._head is None:
                return None
        if self._head.length == CHUNKED:
            return self._maybe_end_chunks()
        size = len(self._data) if self._head.length == UNTIL_CLOSE else self._head.length
        if size > self._body_bytes_max:
            if len(self._data) < self._body_bytes_max and self._cuts:
                return None
            return self._cut_off(self._data)
        if self._head.length == UNTIL_CLOSE or len(self._data) < size:
            return None
        return self._end(bytes(self._data[:size]), len(self._data) == size)

    def _maybe_whole(self, data: bytes) -> Answer | None:
        """Return a short answer that came in one piece, as is usual; None if it is another."""
        end = data.find(_END_OF_HEAD)
        if not 0 <= end <= _CACHED_BYTES_MAX:
            return None
        head = _cached_head(data[:end])
        start = end + len(_END_OF_HEAD)
        size = len(data) - start
        if head.status < 200 or size != head.length or size > self._body_bytes_max:
            return None
        self._head = head
        return self._end(data[start:], is_exact=True)

    def feed_end(self) -> Answer | None:
        """The server has closed the connection; return the answer that ends by that, if any."""
        if self._head is None or self._head.length != UNTIL_CLOSE:
            return None
        return self._end(bytes(self._data), is_exact=False)

    def _maybe_end_chunks(self) -> Answer | None:
        while (found := maybe_read_chunk_size(self._data)) is not None:
            size, start = found
            if len(self._body) + size > self._body_bytes_max:
                return self._cut_off(self._body)
            if len(self._data) < start + size + 2:
                return None
            if size == 0:
                return self._end(bytes(self._body), len(self._data) == start + 2)
            self._body += self._data[start : start + size]
            del self._data[: start + size + 2]
        return None

    def _cut_off(self, body: bytearray) -> Answer:
        if not self._cuts:
            raise BadAnswerError(f"the answer exceeds {self._body_bytes_max} bytes")
        return self._end(bytes(body[: self._body_bytes_max]), is_exact=False)

    def _end(self, body: bytes, is_exact: bool) -> Answer:
        head = self._head
        assert head is not None
        is_reusable = is_exact and head.is_kept_open
        return Answer(head.status, head.reason, head.headers, body, is_reusable)


def _read_status(line: str) -> tuple[int, str]:
    if not line.startswith("HTTP/1.") or not line[9:12].isdecimal():
        raise BadAnswerError("the server does not speak HTTP/1.1")
    return int(line[9:12]), line[13:]


def _body_length(status: int, headers: dict[str, str]) -> int:
    if status < 200 or status in _WITHOUT_BODY:
        return 0
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return CHUNKED
    text = headers.get("content-length")
    if text is None:
        return UNTIL_CLOSE
    if not (text.isascii() and text.isdecimal() and len(text) <= _LENGTH_DIGITS_MAX):
        raise BadAnswerError("the length of the answer cannot be read")
    return int(text)
