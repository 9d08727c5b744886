"""Responses of the HTTP front: JSON bodies, and errors in the form of RabbitMQ's management API.

Every error is a JSON object with `error` and `reason`. Causes inside the broker are logged, never
sent.
"""

import http
import json as plain_json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leveret.errors import (
    AccessRefusedError,
    CorruptionError,
    LeveretError,
    NotFoundError,
    StorageError,
)
from leveret.shortened import shortened

_encode: Final = msgspec.json.Encoder().encode
# RabbitMQ: the words of its management API, which clients compare.
_ERROR_WORDS: Final = {400: "bad_request", 401: "not_authorised", 404: "Object Not Found"}
_LOGIN_FAILED: Final = "not_authorized"


class ErrorBody(msgspec.Struct):
    """Body of every error."""

    error: str
    reason: str

    def __post_init__(self) -> None:
        self.reason = shortened(self.reason)


def json_response(
    body: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a response with a JSON body."""
    return _JsonResponse(encode_json(body), status, headers)


class _JsonResponse(Response):
    """A response with a JSON body; it is made in a quarter of Starlette's time."""

    media_type = "application/json"

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str] | None) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
        ]
        if headers:
            self.raw_headers[:0] = [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in headers.items()
            ]


def encode_json(body: Any) -> bytes:
    """Return a value as JSON. Characters that UTF-8 cannot carry become `?`."""
    try:
        return _encode(body)
    except UnicodeEncodeError:  # a client sent a name that is not UTF-8
        shown = plain_json.dumps(msgspec.to_builtins(body), ensure_ascii=False)
        return shown.encode("utf-8", "replace")


async def on_http_error(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    phrase = http.HTTPStatus(fault.status_code).phrase
    word = _ERROR_WORDS.get(fault.status_code, phrase)
    if fault.status_code == 401 and "WWW-Authenticate" in (fault.headers or {}):
        word = _LOGIN_FAILED  # RabbitMQ spells the two kinds of 401 differently
    body = ErrorBody(word, fault.detail or phrase)
    return json_response(body, status=fault.status_code, headers=dict(fault.headers or {}))


async def on_leveret_error(request: Request, fault: Exception) -> Response:
    """Answer a command that the broker refuses, or a failure of the storage."""
    assert isinstance(fault, LeveretError)
    status = status_of(fault)
    if status == 404:
        return _not_found(request, str(fault))
    phrase = http.HTTPStatus(status).phrase
    return json_response(ErrorBody(_ERROR_WORDS.get(status, phrase), str(fault)), status=status)


def _not_found(request: Request, reason: str) -> Response:
    """RabbitMQ: PUT and POST tell what is missing; other methods say only "Not Found"."""
    if request.method in ("PUT", "POST"):
        return json_response(ErrorBody("not_found", reason), status=404)
    return json_response(ErrorBody(_ERROR_WORDS[404], "Not Found"), status=404)


def status_of(fault: HTTPException | LeveretError) -> int:
    """Return the HTTP status that answers an error."""
    if isinstance(fault, HTTPException):
        return fault.status_code
    if isinstance(fault, NotFoundError):
        return 404
    if isinstance(fault, AccessRefusedError):
        return 401
    if isinstance(fault, CorruptionError):
        return 500  # trying again does not help
    return 503 if isinstance(fault, StorageError) else 400


class _NoResponse(Response):
    """Send nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass


async def on_client_disconnect(request: Request, fault: Exception) -> Response:
    """Send no answer: the client has closed the connection in the middle of its request."""
    return _NoResponse()


async def on_unexpected_error(request: Request, fault: Exception) -> Response:
    # Starlette raises the error again after sending this response; uvicorn logs the traceback.
    return json_response(ErrorBody("Internal Server Error", "Internal Server Error"), status=500)
