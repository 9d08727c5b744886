"""The keys of policies: who takes each, what is wrong with a value, how two values become one.

A policy's definition is a table from key to value. Three rules make the settings of a queue of it:

- `merged`: the user's and the operator's policy that match it, key by key;
- `effective_arguments`: the queue's own arguments and the merged policy, argument by argument;
- `UNSUPPORTED`: a policy with a key that a kind of queue cannot have is passed over for that kind.

To add a key, add a row to `POLICY_KEYS`. Where it stands for an argument, the table of arguments
(`leveret.engine.arguments.rules`) says the rest. A key that stands for none is kept and shown, and
changes nothing here. Reasons are in RabbitMQ's words, values in them as Erlang prints them.
"""

from typing import Final

from leveret.engine.arguments.rules import (
    CLASSIC,
    DEDUPLICATION,
    QUORUM,
    STREAM,
    age_ms,
    erlang_binary,
)
from leveret.wire.scan import BOOL, LONGSTR
from leveret.wire.tables import INTEGERS, NAME_BYTES_MAX, Field, Table

# What becomes of a user's and an operator's value of the same key.
NO_OPERATOR: Final = 0  # operators cannot set it
LEAST: Final = 1
GREATEST: Final = 2
OPERATOR: Final = 3  # the operator's
LIMIT: Final = 4  # the lesser, but a negative one means no limit

# What becomes of an argument and a policy of the same name.
ARGUMENT_WINS: Final = 0
ARGUMENT_OR_LEAST: Final = 1
POLICY_WINS: Final = 2
ARGUMENT_LIMIT: Final = 3  # as LIMIT

_SEGMENT_BYTES_MAX: Final = 3_000_000_000
_NO_MAX: Final = 1 << 63


class ValueType:
    """What a value may be. This one takes any text."""

    def allows(self, field: Field) -> bool:
        return field.kind == LONGSTR


class NumberType(ValueType):
    """A whole number in a range."""

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def allows(self, field: Field) -> bool:
        value = field.value
        return (
            field.kind in INTEGERS and isinstance(value, int) and self.least <= value <= self.most
        )


class WordType(ValueType):
    """One of some words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def allows(self, field: Field) -> bool:
        return field.kind == LONGSTR and field.value in self.words


class AgeType(ValueType):
    """A number and a unit, such as 7D."""

    def allows(self, field: Field) -> bool:
        value = field.value
        return field.kind == LONGSTR and isinstance(value, str) and age_ms(value) > 0


class NameType(ValueType):
    """A text that can name a queue."""

    def allows(self, field: Field) -> bool:
        value = field.value
        if field.kind != LONGSTR or not isinstance(value, str):
            return False
        return 0 < len(value.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX


class AnyType(ValueType):
    """What nobody here reads."""

    def allows(self, field: Field) -> bool:
        return True


class DeduplicationType(ValueType):
    """The table of `x-deduplication`."""

    def allows(self, field: Field) -> bool:
        return not DEDUPLICATION.fault(field, {})


class PolicyKey:
    """One known key."""

    def __init__(
        self, name: str, kind: ValueType, noun: str, merge: int, argument: str, combine: int
    ) -> None:
        self.name = name
        self.kind = kind
        self.noun = noun  # "-1 is not a valid <noun>"
        self.merge = merge
        self.argument = argument  # the queue's argument that it stands for, or the empty string
        self.combine = combine

    def merged(self, user: Field, operator: Field) -> Field:
        """The value where both policies have one."""
        if self.merge == LEAST:
            return lesser(user, operator)
        if self.merge == GREATEST:
            return greater(user, operator)
        if self.merge == LIMIT:
            return limiting(user, operator)
        return operator

    def combined(self, kind: str, own: Field, policy: Field) -> Field:
        """The value where the argument and the policy have one. RabbitMQ: as the kind of queue."""
        if kind == STREAM and self.combine != ARGUMENT_WINS:
            return policy
        if self.name == "overflow":
            return policy if kind == QUORUM else own
        if self.combine == POLICY_WINS or (own.kind not in INTEGERS and policy.kind in INTEGERS):
            return policy
        if self.combine == ARGUMENT_OR_LEAST:
            return lesser(own, policy)
        return limiting(own, policy) if self.combine == ARGUMENT_LIMIT else own


def _number(field: Field) -> int:
    value = field.value
    assert isinstance(value, int)
    return value


def lesser(a: Field, b: Field) -> Field:
    return b if _number(b) < _number(a) else a


def greater(a: Field, b: Field) -> Field:
    return b if _number(b) > _number(a) else a


def limiting(a: Field, b: Field) -> Field:
    """RabbitMQ: the lesser limit; a negative one is none, and then the other one holds."""
    return greater(a, b) if _number(a) < 0 or _number(b) < 0 else lesser(a, b)


_TEXT: Final = ValueType()
_ANY: Final = AnyType()
_COUNT: Final = NumberType(0, _NO_MAX)
_POSITIVE: Final = NumberType(1, _NO_MAX)
_STRATEGIES: Final = ("at-most-once", "at-least-once")
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_RETRY_TYPES: Final = ("disabled", "all", "failed", "returned")
_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders", "min-masters")
_RETRY: Final = "delayed retry type. Must be one of: all, failed, returned, disabled"
_RETRY_MIN: Final = "delayed retry minimum delay. Must be a positive integer"
_RETRY_MAX: Final = "delayed retry maximum delay. Must be a positive integer"
_FILTER: Final = "filter size. Valid range is 16-255"
_IN_MEMORY: Final = "maximum memory in bytes"

POLICY_KEYS: Final[dict[str, PolicyKey]] = {
    key.name: key
    for key in (
        PolicyKey("alternate-exchange", _TEXT, "alternate exchange name", 0, "", 0),
        PolicyKey("dead-letter-exchange", _TEXT, "dead letter exchange name", 0, "x-", 0),
        PolicyKey("dead-letter-routing-key", _TEXT, "dead letter routing key", 0, "x-", 0),
        PolicyKey(
            "dead-letter-strategy", WordType(_STRATEGIES), "dead letter strategy", 0, "x-", 0
        ),
        PolicyKey("expires", _POSITIVE, "queue expiry", LEAST, "x-", ARGUMENT_OR_LEAST),
        PolicyKey("message-ttl", _COUNT, "message TTL", LEAST, "x-", ARGUMENT_OR_LEAST),
        PolicyKey("max-length", _COUNT, "maximum length", LEAST, "x-", ARGUMENT_OR_LEAST),
        PolicyKey(
            "max-length-bytes", _COUNT, "maximum length in bytes", LEAST, "x-", ARGUMENT_OR_LEAST
        ),
        PolicyKey("max-in-memory-length", _COUNT, _IN_MEMORY, LEAST, "", 0),
        PolicyKey("max-in-memory-bytes", _COUNT, _IN_MEMORY, LEAST, "", 0),
        PolicyKey("overflow", WordType(_OVERFLOWS), "overflow value", OPERATOR, "x-", 0),
        PolicyKey(
            "delivery-limit",
            NumberType(-_NO_MAX, _NO_MAX),
            "delivery limit",
            LIMIT,
            "x-",
            ARGUMENT_LIMIT,
        ),
        PolicyKey("queue-version", NumberType(1, 2), "queue-version value", OPERATOR, "", 0),
        PolicyKey("queue-mode", WordType(("default", "lazy")), "queue-mode value", 0, "x-", 0),
        PolicyKey("consumer-timeout", _COUNT, "consumer timeout", 0, "x-", ARGUMENT_OR_LEAST),
        PolicyKey(
            "consumer-disconnected-timeout",
            _COUNT,
            "consumer disconnected timeout",
            0,
            "x-",
            ARGUMENT_OR_LEAST,
        ),
        PolicyKey(
            "delayed-retry-type", WordType(_RETRY_TYPES), _RETRY, OPERATOR, "x-", POLICY_WINS
        ),
        PolicyKey("delayed-retry-min", _POSITIVE, _RETRY_MIN, GREATEST, "x-", ARGUMENT_OR_LEAST),
        PolicyKey("delayed-retry-max", _POSITIVE, _RETRY_MAX, LEAST, "x-", ARGUMENT_OR_LEAST),
        PolicyKey("target-group-size", _POSITIVE, "qq target count value", GREATEST, "", 0),
        PolicyKey(
            "queue-leader-locator", WordType(_LOCATORS), "queue leader locator value", 0, "", 0
        ),
        PolicyKey("initial-cluster-size", _COUNT, "cluster size", 0, "", 0),
        PolicyKey("max-age", AgeType(), "max age", 0, "x-", POLICY_WINS),
        PolicyKey(
            "stream-max-segment-size-bytes",
            NumberType(0, _SEGMENT_BYTES_MAX),
            "segment size",
            0,
            "x-",
            POLICY_WINS,
        ),
        PolicyKey("stream-filter-size-bytes", NumberType(16, 255), _FILTER, 0, "x-", POLICY_WINS),
        # Of plugins, and of mirrored classic queues: they have no meaning here.
        PolicyKey("federation-upstream", _TEXT, "federation upstream name", 0, "", 0),
        PolicyKey("federation-upstream-set", _TEXT, "federation upstream set name", 0, "", 0),
        PolicyKey("federation-upstream-pattern", _TEXT, "federation upstream pattern", 0, "", 0),
        PolicyKey("shards-per-node", _COUNT, "number of shards", 0, "", 0),
        PolicyKey("routing-key", _TEXT, "routing key", 0, "", 0),
        PolicyKey("ha-mode", _ANY, "", OPERATOR, "", 0),
        PolicyKey("ha-params", _ANY, "", OPERATOR, "", 0),
        PolicyKey("ha-sync-mode", _ANY, "", OPERATOR, "", 0),
        PolicyKey("ha-sync-batch-size", _ANY, "", 0, "", 0),
        PolicyKey("ha-promote-on-shutdown", _ANY, "", 0, "", 0),
        PolicyKey("ha-promote-on-failure", _ANY, "", 0, "", 0),
        PolicyKey("queue-master-locator", _ANY, "", 0, "", 0),
        # Leveret's own
        PolicyKey("remember", NameType(), "name of a stream", 0, "x-", 0),
        PolicyKey(
            "deduplication", DeduplicationType(), "table of header, window_ms and size", 0, "x-", 0
        ),
    )
}

_MIRRORING: Final = ("ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown")
_OF_STREAMS: Final = ("max-age", "stream-max-segment-size-bytes", "initial-cluster-size")
_OF_QUORUM: Final = (
    "dead-letter-strategy",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "target-group-size",
)
# RabbitMQ, but for `delivery-limit`, which classic queues have here, and for our own `remember`.
UNSUPPORTED: Final[dict[str, tuple[str, ...]]] = {
    CLASSIC: (*_OF_STREAMS, *_OF_QUORUM),
    QUORUM: (*_OF_STREAMS, *_MIRRORING, "queue-mode", "queue-master-locator"),
    STREAM: (
        *_OF_QUORUM,
        *_MIRRORING,
        "expires",
        "message-ttl",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "max-length",
        "overflow",
        "queue-mode",
        "queue-master-locator",
        "delivery-limit",
        "remember",
    ),
}


def definition_fault(definition: Table, is_operator: bool) -> str:
    """Why a definition is refused, in RabbitMQ's words, or the empty string."""
    if not definition:
        return "no policy provided"
    unknown: list[str] = []
    for name, field in definition.items():
        key = POLICY_KEYS.get(name)
        if key is None or (is_operator and key.merge == NO_OPERATOR):
            unknown.append(f"{{{erlang_binary(name)},{erlang_term(field)}}}")
        elif not key.kind.allows(field):
            return f"{erlang_term(field)} is not a valid {key.noun}"
    if unknown:
        return f"[{','.join(unknown)}] are not recognised policy settings"
    return _retry_fault(definition)


def _retry_fault(definition: Table) -> str:
    kind = definition.get("delayed-retry-type")
    least = definition.get("delayed-retry-min")
    most = definition.get("delayed-retry-max")
    if kind is not None and kind.value != "disabled" and least is None:
        return f"delayed-retry-min is required when delayed-retry-type is {kind.value}"
    if least is not None and most is not None and _number(most) < _number(least):
        return (
            f"delayed-retry-max ({most.value}) must not be smaller than "
            f"delayed-retry-min ({least.value})"
        )
    return ""


def merged(user: Table, operator: Table) -> Table:
    """A user's and an operator's definition as one, in the order of their keys."""
    both: Table = {}
    for name in sorted({*user, *operator}):
        mine = user.get(name)
        theirs = operator.get(name)
        if mine is None or theirs is None:
            found = mine if mine is not None else theirs
            assert found is not None
            both[name] = found
        else:
            both[name] = POLICY_KEYS[name].merged(mine, theirs)
    return both


def effective_arguments(kind: str, arguments: Table, definition: Table) -> Table:
    """What a queue obeys: its arguments, and what a policy says of the same things."""
    effective: Table = dict(arguments)
    for name, field in definition.items():
        key = POLICY_KEYS[name]
        if not key.argument:
            continue
        argument = key.argument + name
        own = arguments.get(argument)
        if own is None:
            effective[argument] = field
        else:
            effective[argument] = key.combined(kind, own, field)
    _settle_retry(effective)
    return effective


def _settle_retry(arguments: Table) -> None:
    """Argument and policy may say things that do not fit: without a least delay there is none."""
    least = arguments.get("x-delayed-retry-min")
    most = arguments.get("x-delayed-retry-max")
    if least is None:
        arguments.pop("x-delayed-retry-type", None)
    elif most is not None and _number(most) < _number(least):
        arguments["x-delayed-retry-max"] = least


def erlang_term(field: Field) -> str:
    """A value as Erlang prints it."""
    value = field.value
    if isinstance(value, dict):
        entries = [f"{erlang_binary(name)} => {erlang_term(item)}" for name, item in value.items()]
        return f"#{{{','.join(entries)}}}"
    if isinstance(value, list):
        return f"[{','.join([erlang_term(item) for item in value])}]"
    if field.kind == BOOL:
        return "true" if value is True else "false"
    if isinstance(value, str):
        return erlang_binary(value)
    return "null" if value is None else str(value)
