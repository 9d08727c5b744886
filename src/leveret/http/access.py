"""Who asks, and for what: Basic credentials of a request, and the names in its path."""

import binascii
from base64 import b64decode
from typing import Final
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.auth import User
from leveret.http.facts import BrokerFacts

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'}


def facts_of(request: Request) -> BrokerFacts:
    facts: BrokerFacts = request.app.state.facts
    return facts


def user_of(request: Request) -> User:
    """The user who asks; 401 without credentials, or with wrong ones."""
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            name, _, password = b64decode(sent, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = password = ""
        host = request.client.host if request.client is not None else ""
        is_loopback = host.startswith("127.") or host == "::1"
        user = facts_of(request).authority.login(name, password, is_loopback=is_loopback)
        if user is not None:
            return user
    raise HTTPException(401, "Login failed", _CHALLENGE)


def vhost_of(request: Request, user: User) -> str:
    """The vhost of the path, in which the user may work."""
    vhost = part_of(request, "vhost")
    if not user.may_open(vhost):
        raise HTTPException(401, "User not authorised to access virtual host")
    return vhost


def part_of(request: Request, name: str) -> str:
    """A part of the path, decoded."""
    return unquote(request.path_params[name], errors="surrogateescape")
