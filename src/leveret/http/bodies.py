"""JSON bodies: encoding, and the form that every error has."""

from typing import Final

import msgspec
from starlette.responses import Response

_encode: Final = msgspec.json.Encoder().encode


class Failure(msgspec.Struct):
    """Body of every error."""

    error: str
    reason: str


def json(
    body: msgspec.Struct, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A JSON response."""
    return Response(_encode(body), status, headers, media_type="application/json")
