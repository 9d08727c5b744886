"""Log in the user of a request."""

import asyncio
import binascii
from base64 import b64decode
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from leveret.auth import Credentials, Refusal, User
from leveret.http.framework.clients import client_of
from leveret.http.framework.request_parts import node_of

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'}
_PROTOCOL: Final = "http"


async def login(request: Request) -> User:
    """Log in the user of a request.

    Answer 401 if the credentials are wrong. Answer 429 after too many wrong passwords, and 503 if
    too many logins wait; then the credentials were not checked.
    """
    credentials = _credentials(request)
    if credentials is None:
        raise HTTPException(401, "Login failed", _CHALLENGE)
    return await admit(request, credentials)


async def login_as(request: Request, name: str, password: str) -> User:
    """Log in with the name and the password from the body of a request."""
    return await admit(request, _sent_from(request, name, password))


async def admit(request: Request, credentials: Credentials) -> User:
    """Return the user of these credentials. Raise as `login` does."""
    outcome = await _ask_authenticator(request, credentials)
    if isinstance(outcome, User):
        return outcome
    if outcome.retry_ms > 0:
        wait = {"Retry-After": str(-(-outcome.retry_ms // 1000))}
        if outcome.is_busy:
            raise HTTPException(503, "Too many logins wait; try again", wait)
        raise HTTPException(429, "Too many wrong passwords; try again", wait)
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
    client = client_of(request)
    return Credentials(
        name,
        password,
        host=client.host,
        is_loopback=client.is_local,
        protocol=_PROTOCOL,
    )


def _basic(sent: str) -> tuple[bytes, bytes]:
    name, _, password = b64decode(sent, validate=True).partition(b":")
    return name, password


def _bearer(sent: str) -> tuple[bytes, bytes]:
    """Return a token as a password without a name."""
    return b"", sent.strip().encode("latin-1")


_NAME_AND_PASSWORD: Final = {"basic": _basic, "bearer": _bearer}


async def _ask_authenticator(request: Request, credentials: Credentials) -> User | Refusal:
    decided: asyncio.Future[User | Refusal] = asyncio.get_running_loop().create_future()

    def decide(outcome: User | Refusal) -> None:
        if not decided.done():  # the request may have been cancelled
            decided.set_result(outcome)

    node_of(request).authenticator.login(credentials, decide)
    if decided.done():
        return decided.result()
    lost: asyncio.Future[None] | None = getattr(request.state, "lost", None)
    if lost is None:
        return await decided

    def on_lost(_: object) -> None:
        credentials.abandon()
        decided.cancel()

    lost.add_done_callback(on_lost)
    try:
        return await decided
    except asyncio.CancelledError:
        if not lost.done():
            raise
        raise ClientDisconnect from None
    finally:
        lost.remove_done_callback(on_lost)
