"""Convert events to messages and back: JSON bodies, and the event name as the message's type.

An event is a dataclass, a msgspec Struct or a pydantic model. This module never imports pydantic;
it recognises models by their methods. A class may set its name by `event_name` and its routing key
by `routing_key`; the default of both is the class name.
"""

import dataclasses
from types import NoneType
from typing import Any, Final, TypeVar, cast

import msgspec

from leveret.bus.errors import (
    DecodeError,
    EncodeError,
)

CONTENT_TYPE: Final = "application/json"
KINDS: Final = "a dataclass, a msgspec Struct or a pydantic model"

# JSON could encode these, but publishing one is a mistake.
_NOT_EVENTS: Final = (NoneType, bool, int, float, str, bytes, dict, list, tuple, set, frozenset)

E = TypeVar("E")


def name_of(event: type) -> str:
    """Return the event name of a class."""
    return str(getattr(event, "event_name", event.__name__))


def routing_key_of(event: type) -> str:
    """Return the routing key of a class."""
    return str(getattr(event, "routing_key", name_of(event)))


def encode(event: object) -> bytes:
    """Return the body of an event. Raise EncodeError."""
    if type(event) in _NOT_EVENTS:
        raise EncodeError(f"{type(event).__name__} is not an event class: use {KINDS}")
    try:
        if (dump := getattr(event, "model_dump_json", None)) is not None:
            # By alias, because models read their fields by alias.
            return str(dump(by_alias=True)).encode()
        return msgspec.json.encode(event)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise EncodeError(f"{type(event).__name__} cannot be written as JSON: {fault}") from fault


def decode(body: bytes, event: type[E]) -> E:
    """Return the event in a body. Raise DecodeError."""
    try:
        if (load := getattr(event, "model_validate_json", None)) is not None:
            return cast(E, load(body))
        return msgspec.json.decode(body, type=event)
    except (ValueError, TypeError, RecursionError) as fault:
        raise DecodeError(f"the body is no {name_of(event)}: {fault}") from fault


def require_event(value: Any) -> None:
    """Raise TypeError unless the value is an event class."""
    is_event = isinstance(value, type) and (
        hasattr(value, "model_validate_json")
        or hasattr(value, "__attrs_attrs__")
        or dataclasses.is_dataclass(value)
        or (issubclass(value, msgspec.Struct | tuple) and value is not tuple)
    )
    if not is_event:
        raise TypeError(f"{value!r} is not an event class: use {KINDS}")
