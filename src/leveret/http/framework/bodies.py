"""Bodies of requests as RabbitMQ reads them: JSON objects in which some keys must be."""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.http.framework.operations import whole_body
from leveret.http.framework.responses import ErrorBody, json_response

Object = dict[str, object]

CREATED: Final = 201
CHANGED: Final = 204


async def object_of(request: Request) -> Object:
    """The JSON object of a body; none at all is an empty one."""
    return read_object(await whole_body(request))


def read_object(data: bytes, fault: str = "not_json") -> Object:
    """An object, or 400 with RabbitMQ's word for what is none."""
    try:
        found = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf") or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HTTPException(400, fault)
    return found


def require_keys(body: Object, *names: str) -> None:
    """400 where one is missing."""
    for name in names:
        if name not in body:
            raise HTTPException(400, f"[{{key_missing,{name}}}]")


def change_response(is_new: bool) -> Response:
    """The answer to a PUT: 201 or 204."""
    return Response(status_code=CREATED if is_new else CHANGED)


def vhost_not_found() -> Response:
    """RabbitMQ's answer where a vhost to change something in does not exist."""
    return json_response(ErrorBody("not_found", "vhost_not_found"), status=404)
