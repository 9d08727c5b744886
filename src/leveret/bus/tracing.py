"""W3C trace context: what is published while a message is handled belongs to the same trace.

The library makes no spans. It hands on the trace of the message that is being handled with a parent
id of its own, so that whoever makes spans sees each hop.
"""

import re
from contextvars import ContextVar
from random import Random
from typing import Final

# The traceparent and tracestate of the message that is being handled.
_current: Final[ContextVar[tuple[str, str] | None]] = ContextVar("leveret_bus_trace", default=None)
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def enter(traceparent: str | None, tracestate: object) -> None:
    """What is done from here on, in this context, belongs to this trace."""
    state = tracestate if isinstance(tracestate, str) else ""
    is_known = traceparent is not None and is_valid(traceparent)
    _current.set((traceparent, state) if is_known and traceparent is not None else None)


def current() -> tuple[str, str] | None:
    """The traceparent and tracestate that hold here."""
    return _current.get()


def is_valid(traceparent: str) -> bool:
    match = _TRACEPARENT.fullmatch(traceparent)
    return match is not None and set(match[1]) != {"0"} and set(match[2]) != {"0"}


def child_of(traceparent: str, rng: Random) -> str:
    """The same trace with a parent id of its own."""
    version, trace, _, flags = traceparent.split("-")
    return f"{version}-{trace}-{rng.randrange(1, 1 << 64):016x}-{flags}"
