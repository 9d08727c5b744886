"""Read request bodies as RabbitMQ does: JSON objects with required keys."""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.decode_errors import DECODE_ERRORS
from leveret.http.framework.operations import whole_body
from leveret.http.framework.responses import ErrorBody, json_response

Object = dict[str, object]

CREATED: Final = 201
CHANGED: Final = 204


async def object_of(request: Request) -> Object:
    """Return the JSON object of the body. An empty body is an empty object."""
    return read_object(await whole_body(request))


def read_object(data: bytes, fault: str = "not_json") -> Object:
    """Return a JSON object, or answer 400 with RabbitMQ's word `fault`."""
    try:
        found = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf") or b"{}")
    except DECODE_ERRORS:
        found = None
    if not isinstance(found, dict):
        raise HTTPException(400, fault)
    return found


def require_keys(body: Object, *names: str) -> None:
    """Answer 400 if a key is missing."""
    for name in names:
        if name not in body:
            raise HTTPException(400, f"[{{key_missing,{name}}}]")


def change_response(*, is_new: bool = False) -> Response:
    """Return the response to a change: 201 if it created an object, else 204."""
    return Response(status_code=CREATED if is_new else CHANGED)


def vhost_not_found() -> Response:
    """Return RabbitMQ's response to a change in a vhost that does not exist."""
    return json_response(ErrorBody("not_found", "vhost_not_found"), status=404)
