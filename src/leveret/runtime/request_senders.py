"""Read from the head of a request who sent it, on a node that follows.

The leader decides whom to trust. A node that follows asks it with the headers that say who sent the
request (`senders`), so that the leader trusts a client as little as it would without this node.
"""

from typing import Final

from leveret.http.framework.clients import FORWARDING

_SENDERS: Final = FORWARDING | {b"authorization", b"host"}


def senders(headers: list[bytes]) -> list[bytes]:
    """Return the headers that say who sent a request: the login, the proxies, and the site."""
    return [line for line in headers if _name(line) in _SENDERS]


def is_forwarded(headers: list[bytes]) -> bool:
    """Return True if a proxy has passed the request on."""
    return any(_name(line) in FORWARDING for line in headers)


def hosts(headers: list[bytes]) -> list[str]:
    """Return the values of all Host headers, in small letters."""
    found = [line.partition(b":")[2] for line in headers if _name(line) == b"host"]
    return [value.strip().decode("latin-1").lower() for value in found]


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()
