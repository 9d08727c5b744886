"""Values that JSON does not have, as JSON: for `json.dumps(…, default=json_value)`."""

import base64
from datetime import date, datetime, time
from decimal import Decimal
from uuid import UUID


def json_value(value: object) -> object:
    """Return the JSON form of a value of a type that JSON lacks. Raise ValueError."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise ValueError(f"a value of type {type(value).__name__} has no JSON")
