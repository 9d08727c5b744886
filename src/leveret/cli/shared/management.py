"""The HTTP client of commands that ask a running broker.

A `ManagementClient` has an address and a login. Each call is one request with a deadline. A failure
raises `NoAnswerError` or `RefusedError`, whose text is a whole sentence for the user.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from leveret.cli.shared.reasons import plain_reason
from leveret.errors import LeveretError
from leveret.http_client.address import parse_address
from leveret.http_client.connections import Connection
from leveret.http_client.errors import CallError, reason_without_address
from leveret.http_client.requests import RequestEncoder
from leveret.http_client.streamed_answer import StreamedAnswer

_TIMEOUT_S: Final = 30.0  # a busy broker or machine may be slow to answer
_CHANGE_TIMEOUT_S: Final = 60.0  # the disk may be slow
_STREAM_TIMEOUT_S: Final = 120.0
_PIECE_BYTES: Final = 1024 * 1024
# First part of a path, and the kind of object that it names: objects of a vhost, and of the node.
_OF_VHOST: Final = {
    "queues": "queue",
    "exchanges": "exchange",
    "streams": "stream",
    "policies": "policy",
    "operator-policies": "operator policy",
}
_OF_NODE: Final = {
    "vhosts": "vhost",
    "users": "user",
    "connections": "connection",
    "channels": "channel",
    "nodes": "node",
    "tasks": "task",
}


class NoAnswerError(LeveretError):
    """No broker answered, or not in a way that can be used."""


class RefusedError(NoAnswerError):
    """The broker refused the request. The text gives its reason."""


class ManagementClient:
    """A broker at an address. Without a given login, the login in the address is used."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        try:
            address = parse_address(url)
        except ValueError as fault:
            raise NoAnswerError(f"{url} is not a valid address: {fault}") from fault
        self._address = replace(
            address,
            user=user or address.user or "guest",
            password=password or address.password or "guest",
        )
        self._encoder = RequestEncoder(self._address)
        self.shown = address.shown
        self.has_login = bool(user or password or address.user or address.password)

    def get(self, path: str) -> Any:
        """GET `path` and return the JSON. Raise RefusedError for an answer with an error."""
        with self._asked(self._get(path), timeout_s=_TIMEOUT_S) as answer:
            return _decode_answer(answer, path)

    def get_any(self, path: str) -> dict[str, object]:
        """GET `path` and return the JSON object, even of an answer with an error status."""
        with self._asked(self._get(path), timeout_s=_TIMEOUT_S) as answer:
            found = json.loads(answer.body.read())
            if not isinstance(found, dict):
                raise ValueError("the answer is not a JSON object")
            return found

    def put(self, path: str, body: object = None) -> Any:
        """PUT a JSON body and return the JSON of the answer, or None."""
        return self._change("PUT", path, body)

    def post(self, path: str, body: object = None) -> Any:
        """POST a JSON body and return the JSON of the answer, or None."""
        return self._change("POST", path, body)

    def delete(self, path: str, headers: dict[str, str] | None = None) -> Any:
        """DELETE `path` and return the JSON of the answer, or None."""
        return self._change("DELETE", path, None, headers)

    def _change(
        self, method: str, path: str, body: object, headers: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = self._encoder.encode(method, path, data, headers)
        with self._asked([request], timeout_s=_CHANGE_TIMEOUT_S) as answer:
            return _decode_answer(answer, path)

    def stream(self, path: str) -> Iterator[bytes]:
        """GET `path` and yield the body piece by piece."""
        with self._asked(self._get(path), timeout_s=_STREAM_TIMEOUT_S) as answer:
            if answer.status != 200:
                _decode_answer(answer, path)
            while piece := answer.body.read(_PIECE_BYTES):
                yield piece

    def send(self, path: str, pieces: Iterable[bytes]) -> Any:
        """POST pieces as one body and return the JSON of the answer."""
        request = self._encoder.encode_chunked("POST", path, pieces)
        with self._asked(request, timeout_s=_STREAM_TIMEOUT_S) as answer:
            return _decode_answer(answer, path)

    def _get(self, path: str) -> list[bytes]:
        return [self._encoder.encode("GET", path)]

    @contextmanager
    def _asked(self, request: Iterable[bytes], *, timeout_s: float) -> Iterator[StreamedAnswer]:
        try:
            connection = Connection(self._address, timeout_s)
            try:
                yield connection.ask_streamed(request, timeout_s)
            finally:
                connection.close()
        except CallError as fault:
            reason = reason_without_address(fault, self.shown)
            raise NoAnswerError(f"no broker answers at {self.shown}: {reason}") from fault
        except ValueError as fault:
            raise NoAnswerError(f"no broker answers at {self.shown}: {fault}") from fault


def _decode_answer(answer: StreamedAnswer, path: str) -> Any:
    data = answer.body.read()
    found = json.loads(data) if data else None
    if answer.status >= 400:
        reason = found.get("reason") if isinstance(found, dict) else None
        if answer.status == 404 and reason == answer.reason:  # it names no object
            raise RefusedError(_missing_object(path) or f"the broker refuses: {reason}: {path}")
        hint = "; check --user and --password" if answer.status == 401 else ""
        raise RefusedError(f"the broker refuses: {plain_reason(reason or answer.reason)}{hint}")
    return found


def _missing_object(path: str) -> str:
    """Return a sentence about the missing object of a path; empty if the path names no object."""
    parts = [unquote(part) for part in urlsplit(path).path.split("/")]
    match parts:
        case ["", "api", kind, vhost, name, *rest] if kind in _OF_VHOST:
            if rest[:1] == ["messages"] and len(rest) > 1:
                return f"no message '{rest[1]}' in queue '{name}' of vhost '{vhost}', or no queue"
            return f"no {_OF_VHOST[kind]} '{name}' in vhost '{vhost}'"
        case ["", "api", kind, name, *_] if kind in _OF_NODE:
            return f"no {_OF_NODE[kind]} '{name}'"
        case ["", "api", kind, vhost] if kind in _OF_VHOST:
            return f"no vhost '{vhost}'"
        case _:
            return ""


def quote_path(*names: str) -> str:
    """Return names as the encoded parts of a path, joined by slashes."""
    return "/".join(quote(name, safe="") for name in names)
