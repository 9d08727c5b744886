"""Who asks: Basic credentials of a request, checked by the node's authority."""

import base64
import binascii
import ipaddress
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.auth import User
from leveret.http.facts import BrokerFacts

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="Leveret"'}


async def require_user(request: Request) -> User:
    """The user who asks; 401 without credentials, or with wrong ones."""
    facts: BrokerFacts = request.app.state.facts
    credentials = _credentials(request.headers.get("authorization", ""))
    if credentials is not None:
        name, password = credentials
        user = facts.authority.login(name, password, is_loopback=_is_loopback(request))
        if user is not None:
            return user
    raise HTTPException(401, "Login failed", _CHALLENGE)


def _credentials(header: str) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    name, colon, password = text.partition(":")
    return (name, password) if colon else None


def _is_loopback(request: Request) -> bool:
    if request.client is None:
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
