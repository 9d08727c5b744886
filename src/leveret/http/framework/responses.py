"""Answers of the HTTP front: JSON bodies, and errors in the form RabbitMQ's management API has.

An error of any kind is a JSON object with `error` and `reason`. What went wrong inside is logged,
never sent.
"""

import http
import json as plain_json
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leveret.errors import AccessRefusedError, LeveretError, NotFoundError, StorageError

_encode: Final = msgspec.json.Encoder().encode
# RabbitMQ: the words of its management API for what clients match on.
_ERROR_WORDS: Final = {400: "bad_request", 401: "not_authorised", 404: "Object Not Found"}
_NOT_LOGGED_IN: Final = "not_authorized"


class ErrorBody(msgspec.Struct):
    """Body of every error."""

    error: str
    reason: str


def json_response(
    body: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A JSON response."""
    return Response(encode_json(body), status, headers, media_type="application/json")


def encode_json(body: Any) -> bytes:
    """A value as JSON, whatever names are in it."""
    try:
        return _encode(body)
    except UnicodeEncodeError:  # a name that somebody sent, and that is not text
        shown = plain_json.dumps(msgspec.to_builtins(body), ensure_ascii=False)
        return shown.encode("utf-8", "replace")


async def on_http_error(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    phrase = http.HTTPStatus(fault.status_code).phrase
    word = _ERROR_WORDS.get(fault.status_code, phrase)
    if fault.status_code == 401 and "WWW-Authenticate" in (fault.headers or {}):
        word = _NOT_LOGGED_IN  # RabbitMQ spells the two kinds of 401 differently
    body = ErrorBody(word, fault.detail or phrase)
    return json_response(body, status=fault.status_code, headers=dict(fault.headers or {}))


async def on_leveret_error(request: Request, fault: Exception) -> Response:
    """A command that the broker refuses, or storage that cannot be used."""
    assert isinstance(fault, LeveretError)
    status = status_of(request, fault)
    if status == 404:
        return _missing(request, str(fault))
    phrase = http.HTTPStatus(status).phrase
    return json_response(ErrorBody(_ERROR_WORDS.get(status, phrase), str(fault)), status=status)


def _missing(request: Request, reason: str) -> Response:
    """RabbitMQ: what is asked for is not found; what something is done with has a name."""
    if request.method in ("PUT", "POST"):
        return json_response(ErrorBody("not_found", reason), status=404)
    return json_response(ErrorBody(_ERROR_WORDS[404], "Not Found"), status=404)


def status_of(request: Request, fault: HTTPException | LeveretError) -> int:
    """The status by which a fault is answered."""
    if isinstance(fault, HTTPException):
        return fault.status_code
    if isinstance(fault, NotFoundError):
        return 404
    if isinstance(fault, AccessRefusedError):
        return 401
    return 503 if isinstance(fault, StorageError) and request.method == "GET" else 400


class _Silence(Response):
    """No answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass


async def on_client_disconnect(request: Request, fault: Exception) -> Response:
    """The client has gone in the middle of its request: nobody would read an answer."""
    return _Silence()


async def on_unexpected_error(request: Request, fault: Exception) -> Response:
    # Starlette raises the fault again after this answer is sent; uvicorn logs it, with traceback.
    return json_response(ErrorBody("Internal Server Error", "Internal Server Error"), status=500)
