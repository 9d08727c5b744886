"""Cursors: the text by which a client continues a search or a trace.

Only the broker can read a cursor. It holds the key of the last message that was looked at
(`leveret.engine.insight.walk`), as JSON in base64.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException

from leveret.engine.insight.filters import STATES
from leveret.engine.insight.walk import WalkCursor

_KEY_MAX: Final = 1 << 62

CursorFields = tuple[int, str, int, int, int, int]


def encode_cursor(cursor: WalkCursor) -> CursorFields:
    return (
        cursor.state,
        cursor.name,
        cursor.major,
        cursor.minor,
        cursor.end,
        cursor.return_end,
    )


def decode_cursor(encoded: CursorFields) -> WalkCursor:
    """Return the cursor of these fields. Answer 400 if they are out of range."""
    cursor = WalkCursor()
    state, cursor.name, *keys = encoded
    if not 0 <= state <= len(STATES) or any(abs(key) > _KEY_MAX for key in keys):
        raise bad_cursor()
    cursor.state = state
    cursor.major, cursor.minor, cursor.end, cursor.return_end = keys
    return cursor


def write_cursor(value: object) -> str:
    """Return the text of a cursor that holds a JSON value."""
    return urlsafe_b64encode(msgspec.json.encode(value)).decode()


def read_cursor(text: str, kind: Any) -> Any:
    """Return the value in the text of a cursor. Answer 400 if the text is not a cursor."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(text), type=kind)
    except (binascii.Error, ValueError, RecursionError):
        raise bad_cursor() from None


def bad_cursor() -> HTTPException:
    return HTTPException(
        400, "the cursor does not come from an earlier answer to this kind of request"
    )
