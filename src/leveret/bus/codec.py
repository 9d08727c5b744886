"""Events as messages: JSON bodies, and the name of an event as the message's type.

An event is a dataclass, a msgspec Struct or a pydantic model. Pydantic is never imported here: its
models are known by their own methods. A class may name its events by `event_name` and their routing
key by `routing_key`; without them the name of the class is both.
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

# JSON too, but no events: whoever publishes one of these has lost what was meant.
_NO_EVENTS: Final = (NoneType, bool, int, float, str, bytes)

E = TypeVar("E")


def name_of(event: type) -> str:
    """The name under which events of this class travel."""
    return str(getattr(event, "event_name", event.__name__))


def routing_key_of(event: type) -> str:
    """The key with which events of this class are published."""
    return str(getattr(event, "routing_key", name_of(event)))


def encode(event: object) -> bytes:
    """The body of an event. Raises EncodeError."""
    if type(event) in _NO_EVENTS:
        raise EncodeError(f"{type(event).__name__} is no event: that is {KINDS}")
    try:
        if (dump := getattr(event, "model_dump_json", None)) is not None:
            # By alias, because that is how a model reads its fields.
            return str(dump(by_alias=True)).encode()
        return msgspec.json.encode(event)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise EncodeError(f"{type(event).__name__} cannot be written as JSON: {fault}") from fault


def decode(body: bytes, event: type[E]) -> E:
    """The event of a body. Raises DecodeError."""
    try:
        if (load := getattr(event, "model_validate_json", None)) is not None:
            return cast(E, load(body))
        return msgspec.json.decode(body, type=event)
    except (ValueError, TypeError, RecursionError) as fault:
        raise DecodeError(f"the body is no {name_of(event)}: {fault}") from fault


def require_event(value: Any) -> None:
    """Raise TypeError for what is no class that a body can be decoded into."""
    is_event = isinstance(value, type) and (
        hasattr(value, "model_validate_json")
        or hasattr(value, "__attrs_attrs__")
        or dataclasses.is_dataclass(value)
        or (issubclass(value, msgspec.Struct | tuple) and value is not tuple)
    )
    if not is_event:
        raise TypeError(f"{value!r} is no class of events: that is {KINDS}")
