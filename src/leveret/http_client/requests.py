"""Requests as bytes.

A `RequestEncoder` belongs to one address and one login. It encodes the headers that its requests
share only once.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from leveret.http_client.address import Address

LAST_CHUNK: Final = b"0\r\n\r\n"
_BODY_END: Final = ("content-length", "transfer-encoding")
_WITH_BODY: Final = ("POST", "PUT", "PATCH")  # a server expects a length, even of an empty body


class RequestEncoder:
    """Encodes requests to one address, with a bearer token or the login of the address."""

    def __init__(
        self,
        address: Address,
        *,
        token: str | None = None,
        user_agent: str = "leveret",
        accept: str = "application/json",
    ) -> None:
        self._address = address
        self._user_agent = user_agent
        self._headers = {
            "Host": address.host_header,
            "Accept": accept,
            "User-Agent": user_agent,
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif address.user is not None:
            login = f"{address.user}:{address.password or ''}"
            self._headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        self._encoded = _encode_headers(self._headers)

    def with_token(self, token: str) -> "RequestEncoder":
        """Return an encoder for the same address with another token."""
        return RequestEncoder(self._address, token=token, user_agent=self._user_agent)

    def encode(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the bytes of one request. `path` is percent-encoded and below the prefix.

        A body is JSON unless `headers` name another Content-Type. Given headers replace our own of
        the same name, apart from the headers that say where the body ends.
        """
        head = self._head(method, self._address.prefix + path, headers)
        return head + _encode_rest(method, body, headers)

    def encode_to_target(
        self, method: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the bytes of a request to the URL of the address itself."""
        head = self._head(method, self._address.target, headers)
        return head + _encode_rest(method, body, headers)

    def encode_chunked(self, method: str, path: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Return the pieces of a request whose body has no known length."""
        yield (
            self._head(method, self._address.prefix + path, None)
            + b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for piece in pieces:
            if piece:
                yield b"%x\r\n%b\r\n" % (len(piece), piece)
        yield LAST_CHUNK

    def _head(self, method: str, target: str, headers: Mapping[str, str] | None) -> bytes:
        line = f"{method} {target} HTTP/1.1\r\n".encode()
        return line + (self._encoded if headers is None else self._encode_with(headers))

    def _encode_with(self, headers: Mapping[str, str]) -> bytes:
        given = {name: value for name, value in headers.items() if name.lower() not in _BODY_END}
        names = {name.lower() for name in given}
        ours = {name: value for name, value in self._headers.items() if name.lower() not in names}
        return _encode_headers({**ours, **given})


def _encode_rest(method: str, body: bytes | None, headers: Mapping[str, str] | None) -> bytes:
    """Return the headers of a body, the end of the head, and the body."""
    if body is None:
        return b"Content-Length: 0\r\n\r\n" if method in _WITH_BODY else b"\r\n"
    kind = b"Content-Type: application/json\r\n"
    if headers is not None and "content-type" in map(str.lower, headers):
        kind = b""
    return kind + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _encode_headers(headers: Mapping[str, str]) -> bytes:
    """Return header lines; ValueError where a header holds a line break or is not Latin-1."""
    text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if text.count("\r") != len(headers) or text.count("\n") != len(headers):
        raise ValueError("an address, a token or a header has characters that no header may have")
    return text.encode("latin-1")
