"""The known arguments of queues and consumers: which kinds of queue accept them, which values.

To add an argument, add a row to a table below, then read it in `queue_arguments`. The rows are in
the order in which RabbitMQ checks arguments, and compares them on a redeclare. An argument without
a row is stored, shown and ignored.

A check returns RabbitMQ's reason to refuse a value, which is the end of the error text, or the
empty string. A reason is an Erlang term: an atom, a tuple, or a quoted string.
"""

from typing import Final

from leveret.wire.scan import BOOL, LONGSTR, TABLE, TIMESTAMP
from leveret.wire.tables import INTEGERS, NAME_BYTES_MAX, Field, Table, kind_name

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
QUEUE_KINDS: Final = (CLASSIC, QUORUM, STREAM)

# Ten years: RabbitMQ's limit for times.
TIME_MS_MAX: Final = 315_360_000_000
NO_MAX: Final = 1 << 63
# Keys that one queue or exchange may remember: about 350 MiB of memory.
DEDUPLICATION_SIZE_MAX: Final = 10_000_000

_ESCAPES: Final[dict[int, str]] = {
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0B: "\\v",
    0x0C: "\\f",
    0x0D: "\\r",
    0x1B: "\\e",
    0x22: '\\"',
    0x5C: "\\\\",
}


def erlang_string(text: str) -> str:
    """Format a text as an Erlang string: quoted if printable Latin-1, else a list of octets."""
    octets = text.encode("utf-8", "surrogateescape")
    for octet in octets:
        if octet not in _ESCAPES and not (0x20 <= octet < 0x7F or octet >= 0xA0):
            return "[" + ",".join([str(octet) for octet in octets]) + "]"
    return '"' + "".join([_ESCAPES.get(ord(char), char) for char in text]) + '"'


def erlang_binary(text: str) -> str:
    """Format a text as an Erlang binary."""
    shown = erlang_string(text)
    return f"<<{shown[1:-1]}>>" if shown.startswith("[") else f"<<{shown}>>"


def _unacceptable(field: Field) -> str:
    return f"{{unacceptable_type,{kind_name(field.kind)}}}"


class ValueCheck:
    """Check of the value of an argument. The base class accepts any value."""

    def fault(self, field: Field, arguments: Table) -> str:
        """Return RabbitMQ's reason to refuse the value, or the empty string."""
        return ""


class IntegerCheck(ValueCheck):
    """A whole number of any integer type."""

    def fault(self, field: Field, arguments: Table) -> str:
        if field.kind in INTEGERS:
            return ""
        return erlang_string(f"expected integer, got {kind_name(field.kind)}")


class RangeCheck(IntegerCheck):
    """A whole number from `least` (0 or 1) to `most`."""

    def __init__(self, least: int, most: int, over: str) -> None:
        self.least = least
        self.most = most
        self.over = over  # the reason to refuse a number above `most`

    def fault(self, field: Field, arguments: Table) -> str:
        number = field.value
        if field.kind not in INTEGERS or not isinstance(number, int):
            return super().fault(field, arguments)
        if number < 0:
            return f"{{value_negative,{number}}}"
        if number < self.least:
            return f"{{value_zero,{number}}}"
        return f"{{{self.over},{number}}}" if number > self.most else ""


class QueueVersionCheck(ValueCheck):
    """1 or 2: the storage formats of RabbitMQ's classic queues. They have no effect here."""

    def fault(self, field: Field, arguments: Table) -> str:
        fault = NOT_NEGATIVE.fault(field, arguments)
        if fault or field.value in (1, 2):
            return fault
        return erlang_string(f"unsupported queue version '{field.value}'")


class BoolCheck(ValueCheck):
    """A bool."""

    def fault(self, field: Field, arguments: Table) -> str:
        return "" if field.kind == BOOL else _unacceptable(field)


class ChoiceCheck(ValueCheck):
    """One of the given words. A reason with a space is a sentence, to which the word is added."""

    def __init__(self, words: tuple[str, ...], reason: str) -> None:
        self.words = words
        self.reason = reason

    def fault(self, field: Field, arguments: Table) -> str:
        if field.kind != LONGSTR:
            return _unacceptable(field)
        if field.value in self.words:
            return ""
        return erlang_string(f"{self.reason}'{field.value}'") if " " in self.reason else self.reason


class DeadLetterKeyCheck(ValueCheck):
    """A text, allowed only together with a dead-letter exchange."""

    def fault(self, field: Field, arguments: Table) -> str:
        if field.kind != LONGSTR:
            return _unacceptable(field)
        return "" if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"


class AgeCheck(ValueCheck):
    """A number and a unit, such as 7D."""

    def fault(self, field: Field, arguments: Table) -> str:
        value = field.value
        if field.kind != LONGSTR or not isinstance(value, str):
            return _unacceptable(field)
        return "" if age_ms(value) > 0 else "invalid_max_age"


class StreamOffsetCheck(ValueCheck):
    """A word, an age, an offset or a time."""

    def fault(self, field: Field, arguments: Table) -> str:
        value = field.value
        if isinstance(value, str):
            known = value in ("first", "last", "next") or age_ms(value) > 0
            return (
                "" if known else f"{{invalid_stream_offset_arg,{{longstr,{erlang_binary(value)}}}}}"
            )
        return "" if field.kind in INTEGERS or field.kind == TIMESTAMP else _unacceptable(field)


class NameCheck(ValueCheck):
    """A text of 1 to `NAME_BYTES_MAX` bytes."""

    def fault(self, field: Field, arguments: Table) -> str:
        value = field.value
        if field.kind != LONGSTR or not isinstance(value, str):
            return _unacceptable(field)
        size = len(value.encode("utf-8", "surrogateescape"))
        return "" if 0 < size <= NAME_BYTES_MAX else "invalid_name"


class StreamFilterCheck(ValueCheck):
    """A text or an array of texts."""

    def fault(self, field: Field, arguments: Table) -> str:
        value = field.value
        if isinstance(value, list):
            for item in value:
                assert isinstance(item, Field)
                if item.kind != LONGSTR:
                    return _unacceptable(item)
            return ""
        return "" if field.kind == LONGSTR else _unacceptable(field)


class DeduplicationCheck(ValueCheck):
    """A table with the optional entries `header`, `window_ms` and `size`."""

    def fault(self, field: Field, arguments: Table) -> str:
        if field.kind != TABLE or not isinstance(field.value, dict):
            return _unacceptable(field)
        for name, entry in field.value.items():
            check = _DEDUPLICATION_ENTRIES.get(name)
            if check is None:
                return f"{{unknown_entry,{erlang_string(name)}}}"
            fault = check.fault(entry, arguments)
            if fault:
                return f"{{{name},{fault}}}"
        return ""


_AGE_UNITS_MS: Final[dict[str, int]] = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
}


def age_ms(text: str) -> int:
    """Return the milliseconds of an age such as 7D, at most `TIME_MS_MAX`; 0 if it is invalid."""
    digits, unit = text[:-1], text[-1:]
    if unit not in _AGE_UNITS_MS or not (digits.isascii() and digits.isdigit()):
        return 0
    if len(digits) > 18:  # Python refuses to read very long numbers
        return TIME_MS_MAX
    return min(int(digits) * _AGE_UNITS_MS[unit], TIME_MS_MAX)


ANYTHING: Final = ValueCheck()
INTEGER: Final = IntegerCheck()
NAME: Final = NameCheck()
FLAG: Final = BoolCheck()
NOT_NEGATIVE: Final = RangeCheck(0, NO_MAX, "")
POSITIVE: Final = RangeCheck(1, NO_MAX, "")
DEDUPLICATION: Final = DeduplicationCheck()

_DEDUPLICATION_ENTRIES: Final[dict[str, ValueCheck]] = {
    "header": NAME,
    "window_ms": RangeCheck(1, TIME_MS_MAX, "value_too_large"),
    "size": RangeCheck(1, DEDUPLICATION_SIZE_MAX, "value_too_large"),
}


class ArgumentRule:
    """One known argument."""

    def __init__(self, name: str, kinds: tuple[str, ...], check: ValueCheck) -> None:
        self.name = name
        self.kinds = kinds  # the kinds of queue that accept it; the others refuse it
        self.check = check


_CLASSIC: Final = (CLASSIC,)
_QUORUM: Final = (QUORUM,)
_STREAM: Final = (STREAM,)
_CLASSIC_OR_QUORUM: Final = (CLASSIC, QUORUM)
DEAD_LETTER_STRATEGIES: Final = ("at-most-once", "at-least-once")
OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
RETRY_TYPES: Final = ("disabled", "all", "failed", "returned")
LEADER_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders", "min-masters")
MASTER_LOCATORS: Final = ("client-local", "random", "min-masters")
QUEUE_MODES: Final = ("default", "lazy")

QUEUE_KIND: Final = ChoiceCheck(QUEUE_KINDS, "unsupported queue type ")

QUEUE_RULES: Final[list[ArgumentRule]] = [
    ArgumentRule("x-expires", _CLASSIC_OR_QUORUM, RangeCheck(1, TIME_MS_MAX, "value_too_large")),
    ArgumentRule(
        "x-message-ttl", _CLASSIC_OR_QUORUM, RangeCheck(0, TIME_MS_MAX, "value_too_large")
    ),
    ArgumentRule(
        "x-dead-letter-exchange", _CLASSIC_OR_QUORUM, ANYTHING
    ),  # `queue_settings` checks its type first
    ArgumentRule("x-dead-letter-routing-key", _CLASSIC_OR_QUORUM, DeadLetterKeyCheck()),
    ArgumentRule(
        "x-dead-letter-strategy",
        _QUORUM,
        ChoiceCheck(DEAD_LETTER_STRATEGIES, "invalid_dlx_strategy"),
    ),
    ArgumentRule("x-max-length", _CLASSIC_OR_QUORUM, NOT_NEGATIVE),
    ArgumentRule("x-max-length-bytes", QUEUE_KINDS, NOT_NEGATIVE),
    ArgumentRule("x-max-in-memory-length", _QUORUM, NOT_NEGATIVE),
    ArgumentRule("x-max-in-memory-bytes", _QUORUM, NOT_NEGATIVE),
    ArgumentRule("x-max-priority", _CLASSIC, RangeCheck(0, 255, "max_value_exceeded")),
    ArgumentRule("x-overflow", _CLASSIC_OR_QUORUM, ChoiceCheck(OVERFLOWS, "invalid_overflow")),
    ArgumentRule("x-queue-mode", _CLASSIC, ChoiceCheck(QUEUE_MODES, "unsupported queue mode ")),
    ArgumentRule("x-queue-version", _CLASSIC, QueueVersionCheck()),
    ArgumentRule("x-single-active-consumer", _CLASSIC_OR_QUORUM, FLAG),
    ArgumentRule(
        "x-queue-type", QUEUE_KINDS, QUEUE_KIND
    ),  # read first: the other rules depend on it
    ArgumentRule("x-quorum-initial-group-size", _QUORUM, POSITIVE),
    ArgumentRule("x-max-age", _STREAM, AgeCheck()),
    ArgumentRule("x-stream-max-segment-size-bytes", _STREAM, NOT_NEGATIVE),
    ArgumentRule("x-stream-filter-size-bytes", _STREAM, NOT_NEGATIVE),
    ArgumentRule("x-initial-cluster-size", _STREAM, POSITIVE),
    # RabbitMQ: a limit that is not a number means the default, a negative one means no limit.
    ArgumentRule("x-delivery-limit", _CLASSIC_OR_QUORUM, ANYTHING),
    ArgumentRule(
        "x-queue-leader-locator",
        QUEUE_KINDS,
        ChoiceCheck(LEADER_LOCATORS, "invalid_queue_locator_arg"),
    ),
    ArgumentRule(
        "x-queue-master-locator",
        _CLASSIC,
        ChoiceCheck(MASTER_LOCATORS, "invalid_queue_locator_arg"),
    ),
    ArgumentRule("x-consumer-timeout", _CLASSIC_OR_QUORUM, NOT_NEGATIVE),
    ArgumentRule("x-consumer-disconnected-timeout", _QUORUM, NOT_NEGATIVE),
    # RabbitMQ: the next three are checked in policies only. Here they are checked as arguments too.
    ArgumentRule(
        "x-delayed-retry-type",
        _CLASSIC_OR_QUORUM,
        ChoiceCheck(RETRY_TYPES, "invalid_delayed_retry_type"),
    ),
    ArgumentRule("x-delayed-retry-min", _CLASSIC_OR_QUORUM, POSITIVE),
    ArgumentRule("x-delayed-retry-max", _CLASSIC_OR_QUORUM, POSITIVE),
    # Leveret's own: obey x-delay, record life events in a stream, drop duplicates.
    ArgumentRule("x-delayed", _CLASSIC_OR_QUORUM, FLAG),
    ArgumentRule("x-remember", _CLASSIC_OR_QUORUM, NAME),
    ArgumentRule("x-deduplication", QUEUE_KINDS, DEDUPLICATION),
]

# Arguments of a super stream that its partitions inherit.
STREAM_ARGUMENTS: Final = (
    "x-max-length-bytes",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
)

CONSUMER_RULES: Final[list[ArgumentRule]] = [
    ArgumentRule("x-priority", _CLASSIC_OR_QUORUM, INTEGER),
    ArgumentRule("x-cancel-on-ha-failover", _CLASSIC_OR_QUORUM, FLAG),
    ArgumentRule("x-consumer-timeout", _CLASSIC_OR_QUORUM, NOT_NEGATIVE),
    ArgumentRule("x-stream-offset", _STREAM, StreamOffsetCheck()),
    ArgumentRule("x-stream-filter", _STREAM, StreamFilterCheck()),
    ArgumentRule("x-stream-match-unfiltered", _STREAM, FLAG),
    ArgumentRule("x-stream-cursor", _STREAM, NAME),  # Leveret's own
]
