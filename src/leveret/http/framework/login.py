"""Who asks: the login of a request, and where its user may work."""

import asyncio
import binascii
from base64 import b64decode
from typing import Final
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.addresses import plain_host
from leveret.auth import Credentials, Refusal, User, is_loopback
from leveret.http.framework.node import NodeView

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'}
_PROTOCOL: Final = "http"


def facts_of(request: Request) -> NodeView:
    facts: NodeView = request.app.state.facts
    return facts


def host_of(request: Request) -> str:
    """The address that the request comes from."""
    return plain_host(request.client.host) if request.client is not None else "127.0.0.1"


async def login(request: Request) -> User:
    """Log in whoever asks; 401 where that fails, 429 where it failed too often."""
    credentials = _credentials(request)
    if credentials is None:
        raise HTTPException(401, "Login failed", _CHALLENGE)
    return await admit(request, credentials)


async def login_as(request: Request, name: str, password: str) -> User:
    """Log in by a name and a password that the request has in its body."""
    return await admit(request, _sent_from(request, name, password))


async def admit(request: Request, credentials: Credentials) -> User:
    """The user of these credentials; raises as `login` does."""
    outcome = await _ask(request, credentials)
    if isinstance(outcome, User):
        return outcome
    if outcome.retry_ms > 0:
        wait_s = -(-outcome.retry_ms // 1000)
        raise HTTPException(429, "Too many failed logins", {"Retry-After": str(wait_s)})
    raise HTTPException(401, "Login failed", _CHALLENGE)


def _credentials(request: Request) -> Credentials | None:
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    try:
        name, password = _NAME_AND_PASSWORD[scheme.lower()](sent)
    except (KeyError, binascii.Error, ValueError):
        return None
    return _sent_from(
        request, name.decode("utf-8", "replace"), password.decode("utf-8", "surrogateescape")
    )


def _sent_from(request: Request, name: str, password: str) -> Credentials:
    host = host_of(request)
    return Credentials(
        name,
        password,
        host=host,
        is_loopback=is_loopback(host),
        protocol=_PROTOCOL,
    )


def _basic(sent: str) -> tuple[bytes, bytes]:
    name, _, password = b64decode(sent, validate=True).partition(b":")
    return name, password


def _bearer(sent: str) -> tuple[bytes, bytes]:
    """A token is a password that needs no name."""
    return b"", sent.strip().encode("latin-1")


_NAME_AND_PASSWORD: Final = {"basic": _basic, "bearer": _bearer}


async def _ask(request: Request, credentials: Credentials) -> User | Refusal:
    decided: asyncio.Future[User | Refusal] = asyncio.get_running_loop().create_future()

    def told(outcome: User | Refusal) -> None:
        if not decided.done():  # the client may have gone
            decided.set_result(outcome)

    facts_of(request).authenticator.login(credentials, told)
    return await decided


def user_of(request: Request) -> User:
    """The user who asks; the operation has logged them in."""
    user: User = request.state.user
    return user


def vhost_of(request: Request) -> str:
    """The vhost of the path, in which the user may work, or look if they only ask."""
    vhost = part_of(request, "vhost")
    user = user_of(request)
    may_enter = user.may_see if request.method in ("GET", "HEAD") else user.may_open
    if not may_enter(vhost):
        raise HTTPException(401, "User not authorised to access virtual host")
    return vhost


def part_of(request: Request, name: str) -> str:
    """A part of the path, decoded."""
    return unquote(request.path_params[name], errors="surrogateescape")
