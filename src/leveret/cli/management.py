"""A small client of the broker's HTTP API, for commands that ask a running broker.

One request, one answer, one deadline. What goes wrong is a `NoAnswer` whose text is a whole
sentence for the user.
"""

import http.client
import json
from typing import Final
from urllib.parse import urlsplit

_TIMEOUT_S: Final = 5.0


class NoAnswer(Exception):
    """No broker answered, or not in a way that can be used."""


def get(url: str, path: str) -> tuple[int, dict[str, object]]:
    """Status and JSON object of GET `path` at the broker `url`; NoAnswer when there is none."""
    address = urlsplit(url if "//" in url else f"//{url}")
    try:
        secure = address.scheme == "https"
        maker = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = maker(address.hostname or "", address.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", address.path.rstrip("/") + path)
            response = connection.getresponse()
            return response.status, _object(response.read())
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
        raise NoAnswer(f"no broker answers at {url}: {reason}") from fault


def _object(body: bytes) -> dict[str, object]:
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("the answer is not a JSON object")
    return found
