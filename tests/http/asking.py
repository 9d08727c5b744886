"""Asks a broker's HTTP front as an administrator, and says what came back."""

import http.client
import json
from base64 import b64encode
from typing import Any
from urllib.parse import quote

from leveret.testing.broker import BrokerUrl

GUEST = "guest:guest"


def ask(
    url: BrokerUrl,
    method: str,
    path: str,
    body: object = None,
    *,
    login: str = GUEST,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Status and decoded body; a body of bytes is sent as it is, anything else as JSON."""
    connection = http.client.HTTPConnection(url.host, url.http_port, timeout=30)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    sent = {"Authorization": "Basic " + b64encode(login.encode()).decode(), **(headers or {})}
    connection.request(method, path, data, sent)
    response = connection.getresponse()
    found = response.read()
    connection.close()
    return response.status, json.loads(found) if found else None


def reason(answer: tuple[int, Any]) -> tuple[int, str]:
    """Status and reason of a refusal."""
    return answer[0], answer[1]["reason"]


def vhost_path(name: str) -> str:
    return quote(name, safe="")
