"""The HTTP API as a test asks it."""

import http.client
import json
from base64 import b64encode
from typing import Any

from leveret.testing.broker import BrokerUrl


def ask(
    url: BrokerUrl,
    method: str,
    path: str,
    body: object = None,
    *,
    login: str | None = "guest:guest",
) -> tuple[int, Any]:
    """Status and decoded body of an answer; None where it has no body."""
    status, data, _ = ask_whole(url, method, path, body, login=login)
    return status, json.loads(data) if data else None


def ask_whole(
    url: BrokerUrl, method: str, path: str, body: object = None, *, login: str | None
) -> tuple[int, bytes, http.client.HTTPMessage]:
    headers = {}
    if login is not None:
        headers["Authorization"] = "Basic " + b64encode(login.encode()).decode()
    connection = http.client.HTTPConnection(url.host, url.http_port, timeout=20)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()
