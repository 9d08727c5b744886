"""Checks of values that operators send, with RabbitMQ's words where one is refused.

A value is JSON as decoded. A check appends to a list of faults; `require_none` turns that list into
the error that RabbitMQ answers with.
"""

from collections.abc import Callable, Mapping, Sequence

from leveret.engine.arguments.policy_keys import erlang_term
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import field_of

Check = Callable[[str, object], str]  # the fault of a value under a name, or the empty string


def term(value: object) -> str:
    """A value as Erlang prints it."""
    if isinstance(value, dict):
        entries = [f"{term(name)} => {term(item)}" for name, item in value.items()]
        return f"#{{{','.join(entries)}}}"
    if isinstance(value, list):
        return f"[{','.join(term(item) for item in value)}]"
    try:
        return erlang_term(field_of(value))
    except ValueError:
        return str(value)


def number(name: str, value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if is_number else f"{name} should be a number, actually was {term(value)}"


def integer(name: str, value: object) -> str:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return "" if is_integer else f"{name} should be a number, actually was {term(value)}"


def entries(
    what: str, value: object, known: Mapping[str, Check], needed: Sequence[str] = ()
) -> list[str]:
    """The faults of an object: unknown entries, missing ones, and values that are refused."""
    if value == []:  # an empty Erlang list is an empty object as much as an empty array
        value = {}
    if not isinstance(value, dict):
        return [f"{what} not a list {term(value)}"]
    faults: list[str] = []
    unknown = [f"{{{term(k)},{term(v)}}}" for k, v in value.items() if k not in known]
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


def require_none(faults: list[str]) -> None:
    """Raise PreconditionFailedError where there are faults."""
    if faults:
        raise PreconditionFailedError("Validation failed\n\n" + "".join(f"{f}\n" for f in faults))
