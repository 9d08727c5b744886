"""Who asks: the login of a request, and where its user may work."""

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


def login(request: Request) -> User:
    """Log in whoever asks; 401 where that fails."""
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            name, _, password = b64decode(sent, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = password = ""
        user = facts_of(request).authority.login(name, password, is_loopback=is_loopback(request))
        if user is not None:
            return user
    raise HTTPException(401, "Login failed", _CHALLENGE)


def is_loopback(request: Request) -> bool:
    """Whether the request comes from this machine."""
    host = request.client.host if request.client is not None else "127.0.0.1"
    return host.startswith("127.") or host in ("::1", "localhost")


def user_of(request: Request) -> User:
    """The user who asks; the operation has logged them in."""
    user: User = request.state.user
    return user


def vhost_of(request: Request) -> str:
    """The vhost of the path, in which the user may work."""
    vhost = part_of(request, "vhost")
    if not user_of(request).may_open(vhost):
        raise HTTPException(401, "User not authorised to access virtual host")
    return vhost


def part_of(request: Request, name: str) -> str:
    """A part of the path, decoded."""
    return unquote(request.path_params[name], errors="surrogateescape")
