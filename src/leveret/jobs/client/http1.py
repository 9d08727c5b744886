"""HTTP/1.1 as the jobs client speaks it: one request, one answer, on connections that stay open.

Knows no sockets: `Requests` makes bytes, an `AnswerReader` is fed bytes until it has an answer.
Both clients share it. It costs a fraction of what `http.client` does, whose headers go through a
parser of e-mails. Bodies have a length or come in chunks; what exceeds the limits is refused.
"""

from base64 import b64encode
from typing import Final
from urllib.parse import SplitResult, unquote

from leveret.jobs.client.errors import BadAnswerError

HEAD_BYTES_MAX: Final = 64 * 1024
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
_END_OF_HEAD: Final = b"\r\n\r\n"
_WITHOUT_BODY: Final = (204, 304)


class Answer:
    """A whole answer. Names of headers are in lower case."""

    __slots__ = ("body", "headers", "keeps", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes, keeps: bool) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.keeps = keeps  # whether the connection can be used again


class Requests:
    """Makes requests to one address with one token, or with the login that the address has."""

    def __init__(self, address: SplitResult, token: str | None) -> None:
        self._address = address
        host = address.netloc.rpartition("@")[2]
        lines = [f"Host: {host}", "Accept: application/json", "User-Agent: leveret-jobs"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        elif address.username is not None:
            login = f"{unquote(address.username)}:{unquote(address.password or '')}"
            lines.append(f"Authorization: Basic {b64encode(login.encode()).decode()}")
        text = "".join(f"{line}\r\n" for line in lines)
        if not text.isascii() or text.count("\r\n") != len(lines) or "\n\n" in text:
            raise ValueError("an address or a token has characters that no header may have")
        self._prefix = address.path.rstrip("/")
        self._headers = text.encode()

    def with_token(self, token: str) -> "Requests":
        """The same with another token."""
        return Requests(self._address, token)

    def encode(self, method: str, path: str, body: bytes | None) -> bytes:
        """The bytes of one request; `path` is encoded already."""
        line = f"{method} {self._prefix}{path} HTTP/1.1\r\n".encode()
        if body is None:
            return line + self._headers + b"\r\n"
        length = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        return line + self._headers + length + body


class AnswerReader:
    """Takes bytes until an answer is whole."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._status = 0
        self._headers: dict[str, str] | None = None  # None until the head is whole
        self._length = 0  # of the body; -1 where it comes in chunks
        self._body = bytearray()  # of chunks

    def feed(self, data: bytes) -> Answer | None:
        """The answer when it is whole. BadAnswerError where this is no HTTP, or too much."""
        self._data += data
        if self._headers is None and not self._take_head():
            return None
        assert self._headers is not None
        if self._length < 0:
            return self._maybe_end_chunks()
        if len(self._data) < self._length:
            return None
        return self._end(bytes(self._data[: self._length]), len(self._data) == self._length)

    def _take_head(self) -> bool:
        end = self._data.find(_END_OF_HEAD)
        if end < 0 or end > HEAD_BYTES_MAX:
            if len(self._data) > HEAD_BYTES_MAX:
                raise BadAnswerError(f"the head of the answer exceeds {HEAD_BYTES_MAX} bytes")
            return False
        lines = self._data[:end].decode("latin-1").split("\r\n")
        del self._data[: end + len(_END_OF_HEAD)]
        self._status = _status_of(lines[0])
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if self._status < 200:  # 100 Continue and its kin: the answer comes after it
            return self._take_head()
        self._headers = headers
        self._length = _length_of(self._status, headers)
        return True

    def _maybe_end_chunks(self) -> Answer | None:
        while (end := self._data.find(b"\r\n")) >= 0:
            size = _chunk_size(bytes(self._data[:end]))
            if len(self._body) + size > BODY_BYTES_MAX:
                raise BadAnswerError(f"the answer exceeds {BODY_BYTES_MAX} bytes")
            if len(self._data) < end + 2 + size + 2:
                return None
            if size == 0:
                return self._end(bytes(self._body), len(self._data) == end + 4)
            self._body += self._data[end + 2 : end + 2 + size]
            del self._data[: end + 2 + size + 2]
        return None

    def _end(self, body: bytes, is_exact: bool) -> Answer:
        assert self._headers is not None
        keeps = is_exact and self._headers.get("connection", "").lower() != "close"
        return Answer(self._status, self._headers, body, keeps)


def _status_of(line: str) -> int:
    if not line.startswith("HTTP/1.") or not line[9:12].isdigit():
        raise BadAnswerError("what answers does not speak HTTP/1.1")
    return int(line[9:12])


def _length_of(status: int, headers: dict[str, str]) -> int:
    if status in _WITHOUT_BODY:
        return 0
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return -1
    text = headers.get("content-length", "")
    if not text.isdigit():
        raise BadAnswerError("the answer does not say how long it is")
    if int(text) > BODY_BYTES_MAX:
        raise BadAnswerError(f"the answer exceeds {BODY_BYTES_MAX} bytes")
    return int(text)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or digits.translate(None, b"0123456789abcdefABCDEF"):
        raise BadAnswerError("the answer comes in chunks that cannot be read")
    return int(digits, 16)
