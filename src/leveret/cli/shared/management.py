"""A small client of the broker's HTTP API, for commands that ask a running broker.

A `Broker` is an address and a login; each call is one request with a deadline. What goes wrong is a
`NoAnswerError` or a `RefusedError` whose text is a whole sentence for the user.
"""

import http.client
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

_TIMEOUT_S: Final = 5.0
_CHANGE_TIMEOUT_S: Final = 60.0  # the disk may be slow
_STREAM_TIMEOUT_S: Final = 120.0
_PIECE_BYTES: Final = 1024 * 1024


class NoAnswerError(Exception):
    """No broker answered, or not in a way that can be used."""


class RefusedError(NoAnswerError):
    """The broker does not do it, and says why."""


class Broker:
    """A broker at an address. A login in the address counts where none is given besides."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        try:
            address = urlsplit(url if "//" in url else f"//{url}")
        except ValueError as fault:
            raise NoAnswerError(f"{url} is no address: {fault}") from fault
        self._secure = address.scheme == "https"
        self._host = address.hostname or ""
        self._address = address
        self._path = address.path.rstrip("/")
        self._user = user or unquote(address.username or "guest")
        self._password = password or unquote(address.password or "guest")
        self.shown = url.replace(f"{address.username}:{address.password}@", "")

    def get(self, path: str) -> Any:
        """The JSON of GET `path`; Refused where the broker answers with an error."""
        with self._asked("GET", path, timeout_s=_TIMEOUT_S) as response:
            return _found(response, path)

    def get_any(self, path: str) -> dict[str, object]:
        """The JSON object of GET `path`, whatever the status says."""
        with self._asked("GET", path, timeout_s=_TIMEOUT_S) as response:
            found = json.loads(response.read())
            if not isinstance(found, dict):
                raise ValueError("the answer is not a JSON object")
            return found

    def put(self, path: str, body: object = None) -> Any:
        """PUT a JSON body; the JSON of the answer, if it has one."""
        return self._change("PUT", path, body)

    def post(self, path: str, body: object = None) -> Any:
        """POST a JSON body; the JSON of the answer, if it has one."""
        return self._change("POST", path, body)

    def delete(self, path: str, headers: dict[str, str] | None = None) -> Any:
        """DELETE; the JSON of the answer, if it has one."""
        return self._change("DELETE", path, None, headers)

    def _change(
        self, method: str, path: str, body: object, headers: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        with self._asked(method, path, data, sent, timeout_s=_CHANGE_TIMEOUT_S) as response:
            return _found(response, path)

    def stream(self, path: str) -> Iterator[bytes]:
        """The body of GET `path`, piece by piece."""
        with self._asked("GET", path, timeout_s=_STREAM_TIMEOUT_S) as response:
            if response.status != 200:
                _found(response, path)
            while piece := response.read(_PIECE_BYTES):
                yield piece

    def send(self, path: str, pieces: Iterable[bytes]) -> Any:
        """POST pieces as one body; the JSON of the answer."""
        with self._asked("POST", path, pieces, timeout_s=_STREAM_TIMEOUT_S) as response:
            return _found(response, path)

    @contextmanager
    def _asked(
        self,
        method: str,
        path: str,
        body: Iterable[bytes] | bytes | None = None,
        more: dict[str, str] | None = None,
        *,
        timeout_s: float,
    ) -> Iterator[http.client.HTTPResponse]:
        login = b64encode(f"{self._user}:{self._password}".encode()).decode()
        maker = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        try:
            connection = maker(self._host, self._address.port, timeout=timeout_s)
            try:
                headers = {"Authorization": f"Basic {login}", **(more or {})}
                # A broker that refuses says so without reading to the end.
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.request(method, self._path + path, body, headers)
                yield connection.getresponse()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as fault:
            reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
            if type(fault) is http.client.BadStatusLine:  # whose text is what came instead
                reason = "what answers there does not speak HTTP"
            raise NoAnswerError(f"no broker answers at {self.shown}: {reason}") from fault


def _found(response: http.client.HTTPResponse, path: str) -> Any:
    data = response.read()
    found = json.loads(data) if data else None
    if response.status >= 400:
        reason = found.get("reason") if isinstance(found, dict) else None
        if response.status == 404 and reason == response.reason:  # it does not say what
            reason = f"{reason}: {path}"
        raise RefusedError(f"the broker refuses: {reason or response.reason}")
    return found


def in_path(*names: str) -> str:
    """Names as parts of a path, with slashes between."""
    return "/".join(quote(name, safe="") for name in names)
