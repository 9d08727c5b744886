"""A small client of the broker's HTTP API, for commands that need a running broker.

A `ManagementClient` holds an address and a login. Each call is one request with a deadline. A
failure raises `NoAnswerError` or `RefusedError`, whose text can be shown to the user as it is.
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
    """No broker answered, or its answer cannot be read."""


class RefusedError(NoAnswerError):
    """The broker refused the request and gave a reason."""


class ManagementClient:
    """Sends requests to one broker. `user` and `password` override a login in the address."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        try:
            address = urlsplit(url if "//" in url else f"//{url}")
        except ValueError as fault:
            raise NoAnswerError(f"{url} is not a valid address: {fault}") from fault
        self._secure = address.scheme == "https"
        self._host = address.hostname or ""
        self._address = address
        self._path = address.path.rstrip("/")
        self._user = user or unquote(address.username or "guest")
        self._password = password or unquote(address.password or "guest")
        self.shown = url.replace(f"{address.username}:{address.password}@", "")

    def get(self, path: str) -> Any:
        """GET `path` and return the JSON. Raise RefusedError if the answer is an error."""
        with self._request("GET", path, timeout_s=_TIMEOUT_S) as response:
            return _read_json(response, path)

    def get_any(self, path: str) -> dict[str, object]:
        """GET `path` and return the JSON object, whatever the status of the answer."""
        with self._request("GET", path, timeout_s=_TIMEOUT_S) as response:
            found = json.loads(response.read())
            if not isinstance(found, dict):
                raise ValueError("the answer is not a JSON object")
            return found

    def put(self, path: str, body: object = None) -> Any:
        """PUT a JSON body and return the JSON of the answer, if it has any."""
        return self._change("PUT", path, body)

    def post(self, path: str, body: object = None) -> Any:
        """POST a JSON body and return the JSON of the answer, if it has any."""
        return self._change("POST", path, body)

    def delete(self, path: str, headers: dict[str, str] | None = None) -> Any:
        """DELETE `path` and return the JSON of the answer, if it has any."""
        return self._change("DELETE", path, None, headers)

    def _change(
        self, method: str, path: str, body: object, headers: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        with self._request(method, path, data, sent, timeout_s=_CHANGE_TIMEOUT_S) as response:
            return _read_json(response, path)

    def stream(self, path: str) -> Iterator[bytes]:
        """GET `path` and yield the body piece by piece."""
        with self._request("GET", path, timeout_s=_STREAM_TIMEOUT_S) as response:
            if response.status != 200:
                _read_json(response, path)
            while piece := response.read(_PIECE_BYTES):
                yield piece

    def send(self, path: str, pieces: Iterable[bytes]) -> Any:
        """POST the pieces as one body and return the JSON of the answer."""
        with self._request("POST", path, pieces, timeout_s=_STREAM_TIMEOUT_S) as response:
            return _read_json(response, path)

    @contextmanager
    def _request(
        self,
        method: str,
        path: str,
        body: Iterable[bytes] | bytes | None = None,
        more: dict[str, str] | None = None,
        *,
        timeout_s: float,
    ) -> Iterator[http.client.HTTPResponse]:
        login = b64encode(f"{self._user}:{self._password}".encode()).decode()
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        try:
            connection = make(self._host, self._address.port, timeout=timeout_s)
            try:
                headers = {"Authorization": f"Basic {login}", **(more or {})}
                # A broker that refuses may answer and close before it has read everything.
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.request(method, self._path + path, body, headers)
                yield connection.getresponse()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as fault:
            reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
            if type(fault) is http.client.BadStatusLine:  # its text is the received line
                reason = "the answer is not HTTP"
            raise NoAnswerError(f"no broker answers at {self.shown}: {reason}") from fault


def _read_json(response: http.client.HTTPResponse, path: str) -> Any:
    data = response.read()
    found = json.loads(data) if data else None
    if response.status >= 400:
        reason = found.get("reason") if isinstance(found, dict) else None
        if response.status == 404 and reason == response.reason:  # name the missing object
            reason = f"{reason}: {path}"
        raise RefusedError(f"the broker refuses: {reason or response.reason}")
    return found


def quote_path(*names: str) -> str:
    """Return the names as one URL path, each name quoted."""
    return "/".join(quote(name, safe="") for name in names)
