"""Conditions on JSON bodies: the value at a path must equal a given value.

    path = "$" step*        step = .name | ["name"] | [number]

A name after a dot ends before the next dot or bracket. Wildcards, slices and filters are not
supported: a path leads to one value.

Only the values on the path are decoded; the rest is skipped. A body that is not JSON, or has
another shape, does not match. If a name occurs twice, the last one counts. A whole number is found
if it is written in digits (5, 5.0), but not with an exponent (5e0).
"""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import msgspec

from leveret.decode_errors import DECODE_ERRORS
from leveret.errors import PreconditionFailedError

STEPS_MAX: Final = 32
_STEP: Final = re.compile(r'\.([^.\[\]"]+)|\["([^"\\]*)"\]|\[(0|[1-9][0-9]{0,6})\]')

_NEVER_ESCAPED: Final = re.compile(r"[A-Za-z0-9 _.:@-]*")

Step = str | int


def parse_path(path: str) -> list[Step]:
    """Return the steps of a path: names, and indexes into lists."""
    if not path.startswith("$"):
        raise PreconditionFailedError(f"the JSON path '{path}' does not begin with $")
    steps: list[Step] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise PreconditionFailedError(
                f"the JSON path '{path}' cannot be read from '{path[at:]}' on"
            )
        name, quoted, index = found.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        at = found.end()
    if len(steps) > STEPS_MAX:
        raise PreconditionFailedError(f"a JSON path has at most {STEPS_MAX} steps")
    return steps


class JsonCondition:
    """One path, and the value that a body must have there."""

    def __init__(self, path: str, wanted: object) -> None:
        if not (wanted is None or isinstance(wanted, (str, int, float))):
            raise PreconditionFailedError(
                f"the JSON path '{path}' can be compared with a single value"
            )
        steps = parse_path(path)
        self._wanted = wanted
        self._opening = b"" if not steps else b"[" if isinstance(steps[0], int) else b"{"
        self._stages = _stages(steps)
        self.needle = _needle(wanted)  # bytes that every matching body contains

    def is_match(self, body: bytes) -> bool:
        """Return True if a body is JSON with the value at the path."""
        opening = self._opening
        if opening and body[:1] != opening and body.lstrip()[:1] != opening:
            return False
        found: Any = body
        try:
            for decode, take, index in self._stages:
                found = decode(found)
                if take is not None:
                    found = take(found)
                if index >= 0:
                    found = found[index]
        except DECODE_ERRORS:
            return False
        except (AttributeError, IndexError, TypeError):
            return False
        if isinstance(found, bool) or isinstance(self._wanted, bool):
            return found is self._wanted
        return bool(found == self._wanted)


def _needle(wanted: object) -> bytes:
    """Return bytes that every body with this value contains; empty if that is unknown.

    JSON text may contain escapes, but encoders never escape these characters. A whole number with
    an exponent is not found.
    """
    if isinstance(wanted, bool):
        return b""
    if isinstance(wanted, int):
        return str(wanted).encode()
    if isinstance(wanted, str) and _NEVER_ESCAPED.fullmatch(wanted):
        return wanted.encode()
    return b""


# A decoder for names up to the next list; a getter for the last value; the list index (-1: none).
_Stage = tuple[Callable[[Any], Any], Callable[[Any], Any] | None, int]


def _stages(steps: list[Step]) -> list[_Stage]:
    stages: list[_Stage] = []
    names: list[str] = []
    for step in steps:
        if isinstance(step, str):
            names.append(step)
        else:
            stages.append(_stage(names, step))
            names = []
    if names or not stages or isinstance(steps[-1], int):
        stages.append(_stage(names, -1))
    return stages


def _stage(names: list[str], index: int) -> _Stage:
    kind: Any = Any if index < 0 else list[msgspec.Raw]
    for name in reversed(names):
        kind = msgspec.defstruct("Level", [("value", kind)], rename={"value": name}, gc=False)
    take = attrgetter(".".join(["value"] * len(names))) if names else None
    return msgspec.json.Decoder(kind).decode, take, index
