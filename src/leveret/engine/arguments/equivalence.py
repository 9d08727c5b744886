"""Compare a second declaration of a queue or exchange with the existing one.

A queue is compared by durable, auto_delete and the arguments that its kind knows. An exchange is
compared by type, durable, auto_delete, internal, alternate exchange, `x-remember` and
`x-deduplication`. Everything else may differ. The error names the first difference, in RabbitMQ's
words. The vhost checks the owner of an exclusive queue.
"""

from typing import Final

from leveret.engine.arguments.header_values import shown_value
from leveret.engine.arguments.rules import CLASSIC, QUEUE_RULES, QUORUM
from leveret.errors import PreconditionFailedError
from leveret.wire.scan import LONGSTR
from leveret.wire.tables import Field, Table, equal_values, kind_name

# RabbitMQ: for a quorum queue the second argument is compared right after the first.
_QUORUM_NEXT: Final[dict[str, str]] = {
    "x-dead-letter-strategy": "x-expires",
    "x-delivery-limit": "x-message-ttl",
}

# type, durable, auto_delete, internal, arguments
ExchangeShape = tuple[str, bool, bool, bool, Table]


def require_equivalent_queue(
    name: str,
    vhost: str,
    have_durable: bool,
    have_auto_delete: bool,
    have_arguments: Table,
    durable: bool,
    auto_delete: bool,
    arguments: Table,
    kind: str,
) -> None:
    """Raise PreconditionFailedError unless a declaration matches an existing queue of this kind."""
    what = f"queue '{name}' in vhost '{vhost}'"
    _require_same_flag("durable", what, have_durable, durable)
    _require_same_flag("auto_delete", what, have_auto_delete, auto_delete)
    for key in _compared(kind):
        if not _are_classic(key, have_arguments, arguments):
            _require_same_argument(key, what, have_arguments, arguments)


def require_equivalent_exchange(
    name: str, vhost: str, have: ExchangeShape, want: ExchangeShape
) -> None:
    """Raise PreconditionFailedError unless a declaration matches an existing exchange."""
    what = f"exchange '{name}' in vhost '{vhost}'"
    if have[0] != want[0]:
        raise _differs("type", what, f"'{want[0]}'", f"'{have[0]}'")
    _require_same_flag("durable", what, have[1], want[1])
    _require_same_flag("auto_delete", what, have[2], want[2])
    _require_same_flag("internal", what, have[3], want[3])
    _require_same_argument("alternate-exchange", what, have[4], want[4])
    _require_same_argument("x-remember", what, have[4], want[4])
    _require_same_argument("x-deduplication", what, have[4], want[4])


def _compared(kind: str) -> list[str]:
    """Return the names of the arguments to compare, in RabbitMQ's order."""
    keys = [rule.name for rule in QUEUE_RULES if kind in rule.kinds]
    if kind == QUORUM:
        for first, second in _QUORUM_NEXT.items():
            keys.remove(second)
            keys.insert(keys.index(first) + 1, second)
    return keys


def _require_same_flag(key: str, what: str, have: bool, want: bool) -> None:
    if have != want:
        raise _differs(key, what, f"'{str(want).lower()}'", f"'{str(have).lower()}'")


def _are_classic(key: str, have: Table, want: Table) -> bool:
    """Return True if both tables mean a classic queue: no x-queue-type is the same as classic."""
    return key == "x-queue-type" and _is_classic(have) and _is_classic(want)


def _is_classic(arguments: Table) -> bool:
    field = arguments.get("x-queue-type")
    return field is None or (field.kind == LONGSTR and field.value == CLASSIC)


def _require_same_argument(key: str, what: str, have: Table, want: Table) -> None:
    old = have.get(key)
    new = want.get(key)
    if old is None and new is None:
        return
    if old is None or new is None:
        raise _differs(key, what, _with_type(new), _with_type(old))
    if not _are_equal(key, old, new):
        raise _differs(key, what, _without_type(new), _without_type(old))


def _are_equal(key: str, old: Field, new: Field) -> bool:
    """Return True if two values of an argument are equal.

    RabbitMQ: inside a table the types must be equal too. Inside `x-deduplication`, which is ours,
    integers of different width are equal.
    """
    if key != "x-deduplication":
        return equal_values(old, new)
    have, want = old.value, new.value
    if not isinstance(have, dict) or not isinstance(want, dict) or have.keys() != want.keys():
        return False
    for name, field in have.items():
        if not equal_values(field, want[name]):
            return False
    return True


def _with_type(field: Field | None) -> str:
    if field is None:
        return "none"
    return f"the value '{_shown(field)}' of type '{kind_name(field.kind)}'"


def _without_type(field: Field) -> str:
    return "none" if field.value is None else f"'{_shown(field)}'"


def _shown(field: Field) -> str:
    """Return a text as it is, and any other value as Erlang prints it."""
    value = field.value
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return shown_value(field)


def _differs(key: str, what: str, received: str, current: str) -> PreconditionFailedError:
    return PreconditionFailedError(
        f"inequivalent arg '{key}' for {what}: received {received} but current is {current}"
    )
