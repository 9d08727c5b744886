"""Check values that operators send. The texts of faults are RabbitMQ's.

A value is decoded JSON. A check returns a fault or a list of faults. `require_no_faults` turns a
list into the error that RabbitMQ answers with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from leveret.engine.arguments.policy_keys import erlang_term as field_term
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import field_of

Check = Callable[[str, object], str]  # returns the fault of a named value, or an empty string


# A fault quotes this much of a value.
QUOTED_DEPTH_MAX: Final = 8
QUOTED_ITEMS_MAX: Final = 100  # of each list and object
_LEFT_OUT: Final = "…"


def erlang_term(value: object, depth: int = 0) -> str:
    """Return a value as Erlang prints it. The rest of a long or deep value is left out."""
    if isinstance(value, dict | list) and depth == QUOTED_DEPTH_MAX:
        return _LEFT_OUT
    if isinstance(value, dict):
        return f"#{{{','.join(_quoted(_entry(pair, depth) for pair in value.items()))}}}"
    if isinstance(value, list):
        return f"[{','.join(_quoted(erlang_term(item, depth + 1) for item in value))}]"
    try:
        return field_term(field_of(value))
    except ValueError:
        return str(value)


def _entry(pair: tuple[object, object], depth: int) -> str:
    return f"{erlang_term(pair[0])} => {erlang_term(pair[1], depth + 1)}"


def _quoted(terms: Iterator[str]) -> Iterator[str]:
    """Yield the first terms, and a mark if there are more."""
    yield from islice(terms, QUOTED_ITEMS_MAX)
    if next(terms, None) is not None:
        yield _LEFT_OUT


def number_fault(name: str, value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if is_number else f"{name} should be a number, actually was {erlang_term(value)}"


def integer_fault(name: str, value: object) -> str:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return "" if is_integer else f"{name} should be a number, actually was {erlang_term(value)}"


def object_faults(
    what: str, value: object, known: Mapping[str, Check], needed: Sequence[str] = ()
) -> list[str]:
    """Return the faults of an object: unknown keys, missing keys, and refused values."""
    if value == []:  # RabbitMQ: an empty Erlang list is an empty object too
        value = {}
    if not isinstance(value, dict):
        return [f"{what} not a list {erlang_term(value)}"]
    faults: list[str] = []
    terms = (f"{{{erlang_term(k)},{erlang_term(v)}}}" for k, v in value.items() if k not in known)
    unknown = list(_quoted(terms))
    if unknown:
        faults.append(f"Unrecognised terms [{','.join(unknown)}] in {what}")
    for name in reversed(list(known)):
        if name in value:
            fault = known[name](name, value[name])
            if fault:
                faults.append(fault)
        elif name in needed:
            faults.append(f'Key "{name}" not found in {what}')
    return faults


def require_no_faults(faults: list[str]) -> None:
    """Raise PreconditionFailedError with all faults, if there are any."""
    if faults:
        raise PreconditionFailedError("Validation failed\n\n" + "".join(f"{f}\n" for f in faults))
