"""W3C trace context: messages that a handler publishes belong to the trace of its message.

The bus makes no spans. It passes the trace on with a new parent id, so that tools which make spans
see each hop.
"""

import re
from contextvars import ContextVar
from random import Random
from typing import Final

# The traceparent and tracestate of the message that is being handled.
_current: Final[ContextVar[tuple[str, str] | None]] = ContextVar("leveret_bus_trace", default=None)
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def set_current(traceparent: str | None, tracestate: object) -> None:
    """Set the trace of this context."""
    state = tracestate if isinstance(tracestate, str) else ""
    is_known = traceparent is not None and is_valid(traceparent)
    _current.set((traceparent, state) if is_known and traceparent is not None else None)


def current() -> tuple[str, str] | None:
    """Return traceparent and tracestate of this context."""
    return _current.get()


def is_valid(traceparent: str) -> bool:
    match = _TRACEPARENT.fullmatch(traceparent)
    return match is not None and set(match[1]) != {"0"} and set(match[2]) != {"0"}


def child_of(traceparent: str, rng: Random) -> str:
    """Return the same trace with a new parent id."""
    version, trace, _, flags = traceparent.split("-")
    return f"{version}-{trace}-{rng.randrange(1, 1 << 64):016x}-{flags}"
