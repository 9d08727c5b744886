"""Send HTTP requests to a broker, as guest by default, and return the answers."""

import json
from base64 import b64encode
from http.client import HTTPConnection, HTTPMessage
from typing import Any
from urllib.parse import quote

from leveret.testing.broker import RunningBroker

GUEST = "guest:guest"
WITHIN_S = 150.0  # longer than a bulk read may wait for its worker


def ask(
    server: RunningBroker,
    method: str,
    path: str,
    body: object = None,
    *,
    login: str | None = GUEST,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Return status and decoded body of an answer; None if it has no body."""
    status, data, _ = ask_whole(server, method, path, body, login=login, headers=headers)
    return status, json.loads(data) if data else None


def ask_whole(
    server: RunningBroker,
    method: str,
    path: str,
    body: object = None,
    *,
    login: str | None = GUEST,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes, HTTPMessage]:
    """Return status, body and headers. Bytes are sent unchanged, other bodies as JSON."""
    sent = dict(headers or {})
    if login is not None:
        sent["Authorization"] = "Basic " + b64encode(login.encode()).decode()
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection = HTTPConnection(server.host, server.http_port, timeout=WITHIN_S)
    try:
        connection.request(method, path, data, sent)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def reason(answer: tuple[int, Any]) -> tuple[int, str]:
    """Return status and reason of an error."""
    return answer[0], answer[1]["reason"]


def vhost_path(name: str) -> str:
    return quote(name, safe="")
