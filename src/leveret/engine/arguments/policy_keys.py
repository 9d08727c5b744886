"""The keys of policies: which values each accepts, and how two values become one.

The definition of a policy is a table from key to value. It changes a queue in three steps:

- `UNSUPPORTED`: a policy with a key that a kind of queue cannot have does not apply to that kind;
- `merged`: the user policy and the operator policy become one definition, key by key;
- `effective_arguments`: the queue's arguments and that definition become the arguments in effect.

To add a key, add a row to `POLICY_KEYS`. If the key means the same as an argument, the argument is
checked in `leveret.engine.arguments.rules`. A key without an argument is stored and shown, and
changes nothing. Errors are in RabbitMQ's words, with values as Erlang prints them.
"""

from typing import Final

from leveret.engine.arguments.queue_arguments import (
    FILTER_BYTES_MAX,
    FILTER_BYTES_MIN,
    SEGMENT_BYTES_MAX,
)
from leveret.engine.arguments.rules import (
    CLASSIC,
    DEAD_LETTER_STRATEGIES,
    DEDUPLICATION,
    LEADER_LOCATORS,
    NO_MAX,
    OVERFLOWS,
    QUEUE_MODES,
    QUORUM,
    RETRY_TYPES,
    STREAM,
    age_ms,
    erlang_binary,
)
from leveret.wire.scan import BOOL, LONGSTR
from leveret.wire.tables import INTEGERS, NAME_BYTES_MAX, Field, Table

# `PolicyKey.merge`: how a user's and an operator's value of the same key become one.
NO_OPERATOR: Final = 0  # only user policies can set the key
LEAST: Final = 1  # the lesser value
GREATEST: Final = 2  # the greater value
OPERATOR: Final = 3  # the operator's value
LIMIT: Final = 4  # the lesser value, but a negative value means no limit

# `PolicyKey.combine`: how the queue argument `x-<key>` and the policy's value become one.
NO_ARGUMENT: Final = 0  # there is no such argument: the key changes nothing here
ARGUMENT_WINS: Final = 1
LESSER_OF_BOTH: Final = 2
POLICY_WINS: Final = 3
LIMIT_OF_BOTH: Final = 4  # the lesser value, but a negative value means no limit


class ValueType:
    """The values that a key accepts. The base class accepts any text."""

    def allows(self, field: Field) -> bool:
        return field.kind == LONGSTR


class NumberType(ValueType):
    """A whole number from `least` to `most`."""

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def allows(self, field: Field) -> bool:
        value = field.value
        return (
            field.kind in INTEGERS and isinstance(value, int) and self.least <= value <= self.most
        )


class WordType(ValueType):
    """One of the given words."""

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


class RoutingKeyType(ValueType):
    """A text that can be a routing key."""

    def allows(self, field: Field) -> bool:
        value = field.value
        if field.kind != LONGSTR or not isinstance(value, str):
            return False
        return len(value.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX


class AnyType(ValueType):
    """Any value: the key is stored, and nothing reads it."""

    def allows(self, field: Field) -> bool:
        return True


class DeduplicationType(ValueType):
    """The table of `x-deduplication`."""

    def allows(self, field: Field) -> bool:
        return not DEDUPLICATION.fault(field, {})


class PolicyKey:
    """One known key of policies."""

    def __init__(
        self,
        name: str,
        kind: ValueType,
        noun: str,
        merge: int = NO_OPERATOR,
        combine: int = NO_ARGUMENT,
    ) -> None:
        self.name = name
        self.kind = kind
        self.noun = noun  # "-1 is not a valid <noun>"
        self.merge = merge
        self.combine = combine

    def merged(self, user: Field, operator: Field) -> Field:
        """Return the value if the user policy and the operator policy both have one."""
        if self.merge == LEAST:
            return lesser(user, operator)
        if self.merge == GREATEST:
            return greater(user, operator)
        if self.merge == LIMIT:
            return limiting(user, operator)
        return operator

    def combined(self, kind: str, own: Field, policy: Field) -> Field:
        """Return the value if the queue's argument and the policy both have one.

        RabbitMQ: it depends on the kind of queue.
        """
        if kind == STREAM and self.combine != ARGUMENT_WINS:
            return policy
        if self.name == "overflow":
            return policy if kind == QUORUM else own
        if self.combine == POLICY_WINS or (own.kind not in INTEGERS and policy.kind in INTEGERS):
            return policy
        if self.combine == LESSER_OF_BOTH:
            return lesser(own, policy)
        return limiting(own, policy) if self.combine == LIMIT_OF_BOTH else own


def _number(field: Field) -> int:
    value = field.value
    assert isinstance(value, int)
    return value


def lesser(a: Field, b: Field) -> Field:
    return b if _number(b) < _number(a) else a


def greater(a: Field, b: Field) -> Field:
    return b if _number(b) > _number(a) else a


def limiting(a: Field, b: Field) -> Field:
    """Return the stricter limit. RabbitMQ: a negative value means no limit."""
    return greater(a, b) if _number(a) < 0 or _number(b) < 0 else lesser(a, b)


_TEXT: Final = ValueType()
_ANY: Final = AnyType()
_COUNT: Final = NumberType(0, NO_MAX)
_POSITIVE: Final = NumberType(1, NO_MAX)
_RETRY: Final = "delayed retry type. Must be one of: all, failed, returned, disabled"
_RETRY_MIN: Final = "delayed retry minimum delay. Must be a positive integer"
_RETRY_MAX: Final = "delayed retry maximum delay. Must be a positive integer"
_FILTER: Final = "filter size. Valid range is 16-255"
_IN_MEMORY: Final = "maximum memory in bytes"

POLICY_KEYS: Final[dict[str, PolicyKey]] = {
    key.name: key
    for key in (
        PolicyKey("alternate-exchange", _TEXT, "alternate exchange name"),
        PolicyKey(
            "dead-letter-exchange", _TEXT, "dead letter exchange name", NO_OPERATOR, ARGUMENT_WINS
        ),
        PolicyKey(
            "dead-letter-routing-key",
            RoutingKeyType(),
            "dead letter routing key",
            NO_OPERATOR,
            ARGUMENT_WINS,
        ),
        PolicyKey(
            "dead-letter-strategy",
            WordType(DEAD_LETTER_STRATEGIES),
            "dead letter strategy",
            NO_OPERATOR,
            ARGUMENT_WINS,
        ),
        PolicyKey("expires", _POSITIVE, "queue expiry", LEAST, LESSER_OF_BOTH),
        PolicyKey("message-ttl", _COUNT, "message TTL", LEAST, LESSER_OF_BOTH),
        PolicyKey("max-length", _COUNT, "maximum length", LEAST, LESSER_OF_BOTH),
        PolicyKey("max-length-bytes", _COUNT, "maximum length in bytes", LEAST, LESSER_OF_BOTH),
        PolicyKey("max-in-memory-length", _COUNT, _IN_MEMORY, LEAST),
        PolicyKey("max-in-memory-bytes", _COUNT, _IN_MEMORY, LEAST),
        PolicyKey("overflow", WordType(OVERFLOWS), "overflow value", OPERATOR, ARGUMENT_WINS),
        PolicyKey(
            "delivery-limit", NumberType(-NO_MAX, NO_MAX), "delivery limit", LIMIT, LIMIT_OF_BOTH
        ),
        PolicyKey("queue-version", NumberType(1, 2), "queue-version value", OPERATOR),
        PolicyKey(
            "queue-mode", WordType(QUEUE_MODES), "queue-mode value", NO_OPERATOR, ARGUMENT_WINS
        ),
        PolicyKey("consumer-timeout", _COUNT, "consumer timeout", NO_OPERATOR, LESSER_OF_BOTH),
        PolicyKey(
            "consumer-disconnected-timeout",
            _COUNT,
            "consumer disconnected timeout",
            NO_OPERATOR,
            LESSER_OF_BOTH,
        ),
        PolicyKey("delayed-retry-type", WordType(RETRY_TYPES), _RETRY, OPERATOR, POLICY_WINS),
        PolicyKey("delayed-retry-min", _POSITIVE, _RETRY_MIN, GREATEST, LESSER_OF_BOTH),
        PolicyKey("delayed-retry-max", _POSITIVE, _RETRY_MAX, LEAST, LESSER_OF_BOTH),
        PolicyKey("target-group-size", _POSITIVE, "qq target count value", GREATEST),
        PolicyKey("queue-leader-locator", WordType(LEADER_LOCATORS), "queue leader locator value"),
        PolicyKey("initial-cluster-size", _COUNT, "cluster size"),
        PolicyKey("max-age", AgeType(), "max age", NO_OPERATOR, POLICY_WINS),
        PolicyKey(
            "stream-max-segment-size-bytes",
            NumberType(0, SEGMENT_BYTES_MAX),
            "segment size",
            NO_OPERATOR,
            POLICY_WINS,
        ),
        PolicyKey(
            "stream-filter-size-bytes",
            NumberType(FILTER_BYTES_MIN, FILTER_BYTES_MAX),
            _FILTER,
            NO_OPERATOR,
            POLICY_WINS,
        ),
        # Keys of RabbitMQ's plugins and mirrored queues: stored, without effect.
        PolicyKey("federation-upstream", _TEXT, "federation upstream name"),
        PolicyKey("federation-upstream-set", _TEXT, "federation upstream set name"),
        PolicyKey("federation-upstream-pattern", _TEXT, "federation upstream pattern"),
        PolicyKey("shards-per-node", _COUNT, "number of shards"),
        PolicyKey("routing-key", _TEXT, "routing key"),
        PolicyKey("ha-mode", _ANY, "", OPERATOR),
        PolicyKey("ha-params", _ANY, "", OPERATOR),
        PolicyKey("ha-sync-mode", _ANY, "", OPERATOR),
        PolicyKey("ha-sync-batch-size", _ANY, ""),
        PolicyKey("ha-promote-on-shutdown", _ANY, ""),
        PolicyKey("ha-promote-on-failure", _ANY, ""),
        PolicyKey("queue-master-locator", _ANY, ""),
        # Leveret's own
        PolicyKey("remember", NameType(), "name of a stream", NO_OPERATOR, ARGUMENT_WINS),
        PolicyKey(
            "deduplication",
            DeduplicationType(),
            "table of header, window_ms and size",
            NO_OPERATOR,
            ARGUMENT_WINS,
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
# RabbitMQ: the same, except for `delivery-limit`, which classic queues have here, and our own
# `remember`.
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
    """Return why a definition is refused, in RabbitMQ's words; empty if it is accepted."""
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
    """Merge a user's and an operator's definition; the keys are sorted."""
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
    """Return the arguments in effect: a queue's own, combined with the definition of its policy."""
    effective: Table = dict(arguments)
    for name, field in definition.items():
        key = POLICY_KEYS[name]
        if key.combine == NO_ARGUMENT:
            continue
        argument = "x-" + name
        own = arguments.get(argument)
        if own is None:
            effective[argument] = field
        else:
            effective[argument] = key.combined(kind, own, field)
    _settle_retry(effective)
    return effective


def _settle_retry(arguments: Table) -> None:
    """Resolve conflicts between an argument and a policy about delayed retries.

    Without a minimum delay there is no delayed retry. A maximum is never below the minimum.
    """
    least = arguments.get("x-delayed-retry-min")
    most = arguments.get("x-delayed-retry-max")
    if least is None:
        arguments.pop("x-delayed-retry-type", None)
    elif most is not None and _number(most) < _number(least):
        arguments["x-delayed-retry-max"] = least


def erlang_term(field: Field) -> str:
    """Format a value as Erlang prints it."""
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
