"""Send requests to the management API of a broker, as any user."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPMessage
from typing import Any
from urllib.parse import quote

import pika

from leveret.testing.broker import RunningBroker
from tests.http.asking import ask_whole


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, status: int, data: bytes, headers: HTTPMessage) -> None:
        self.status = status
        self.headers = headers
        self.data = data

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Api:
    """The HTTP API of a broker, for one user."""

    def __init__(self, server: RunningBroker, user: str = "guest") -> None:
        self._server = server
        self._login = f"{user}:{user}"

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        found = ask_whole(
            self._server, method, f"/api/{path}", body, login=self._login, headers=headers
        )
        return Answer(*found)

    def as_user(self, name: str) -> "Api":
        return Api(self._server, name)

    def get(self, path: str) -> Any:
        """Return the JSON of a GET that must succeed."""
        answer = self.ask("GET", path)
        assert answer.status == 200, (path, answer.status, answer.data)
        return answer.json

    def put(self, path: str, body: object = None) -> int:
        return self.ask("PUT", path, {} if body is None else body).status

    def post(self, path: str, body: object = None) -> Answer:
        return self.ask("POST", path, {} if body is None else body)

    def delete(self, path: str) -> int:
        return self.ask("DELETE", path).status


def part(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="")


@contextmanager
def connected(server: RunningBroker, **parameters: Any) -> Iterator[Any]:
    """Open an AMQP connection."""
    given = pika.URLParameters(server.url)
    for name, value in parameters.items():
        setattr(given, name, value)
    connection = pika.BlockingConnection(given)
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def _quick_hash(password: str) -> str:
    """Return RabbitMQ's SHA-256 hash, with which logins are fast."""
    salt = b"salt"
    return b64encode(salt + sha256(salt + password.encode()).digest()).decode()


def add_user(api: Api, name: str, *tags: str, **permissions: str) -> Api:
    """Create a user whose password is their name, with these permissions in the vhost `/`."""
    body = {"password_hash": _quick_hash(name), "tags": list(tags)}
    assert api.put(f"users/{name}", body) == 201
    if permissions:
        given = {"configure": "", "write": "", "read": "", **permissions}
        assert api.put(f"permissions/%2F/{name}", given) == 201
    return api.as_user(name)
