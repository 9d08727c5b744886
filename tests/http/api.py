"""Asks a broker over HTTP, as any user, and gives it users that may do less than everything."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pika

from leveret.auth import Authority, User
from leveret.testing.broker import BrokerUrl

WITHIN_S = 30.0


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, status: int, headers: Any, data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Api:
    """The HTTP API of a broker, for one user."""

    def __init__(self, url: BrokerUrl, user: str = "guest") -> None:
        self._url = url
        self._login = "Basic " + b64encode(f"{user}:{user}".encode()).decode()

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = HTTPConnection(self._url.host, self._url.http_port, timeout=WITHIN_S)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": self._login, **(headers or {})}
        connection.request(method, f"/api/{path}", None if body is None else data, sent)
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        connection.close()
        return answer

    def get(self, path: str) -> Any:
        """The JSON of a GET that succeeds."""
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
    """A name as a part of a path."""
    return quote(name, safe="")


@contextmanager
def connected(url: BrokerUrl, **parameters: Any) -> Iterator[Any]:
    """An AMQP connection."""
    given = pika.URLParameters(url)
    for name, value in parameters.items():
        setattr(given, name, value)
    connection = pika.BlockingConnection(given)
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


class LimitedUser(User):
    """May open the vhosts named, and do there what is listed: ("write", "queue", "q")."""

    def __init__(
        self, name: str, tags: tuple[str, ...], vhosts: tuple[str, ...], *may: tuple[str, str, str]
    ) -> None:
        super().__init__(name, tags)
        self._vhosts = vhosts
        self._may = set(may)

    def may_open(self, vhost: str) -> bool:
        return vhost in self._vhosts

    def may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        return vhost in self._vhosts and (permission, what, name) in self._may


class SomeUsers(Authority):
    """Users whose password is their name."""

    def __init__(self, *users: User) -> None:
        self.users = {user.name: user for user in users}
        self.users["guest"] = User("guest", ("administrator",))

    def login(self, name: str, password: str, *, is_loopback: bool) -> User | None:
        return self.users.get(name) if name == password else None


def give_users(url: BrokerUrl, *users: User) -> None:
    """Let these users log in, besides the guest."""
    url.node.front.authority = SomeUsers(*users)
