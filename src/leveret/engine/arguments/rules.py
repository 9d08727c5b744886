"""The arguments that queues and consumers know: who takes each, and what is wrong with a value.

To add an argument, add a row to a table below, then read it in `queue_arguments`. The
order of the rows is the order in which RabbitMQ checks, and in which it compares on a redeclare.
An argument that is in no row is kept, shown and ignored.

A check answers with RabbitMQ's reason, which ends the text of the error, or with the empty string.
Reasons are Erlang terms: an atom, a tuple, or a quoted string.
"""

from typing import Final

from leveret.wire.scan import BOOL, LONGSTR, TABLE, TIMESTAMP
from leveret.wire.tables import INTEGERS, NAME_BYTES_MAX, Field, Table, kind_name

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
QUEUE_KINDS: Final = (CLASSIC, QUORUM, STREAM)

# Ten years: RabbitMQ's bound of the times that it bounds.
TIME_MS_MAX: Final = 315_360_000_000
_NO_MAX: Final = 1 << 63
# Keys that one queue or exchange may remember: some 350 MiB of memory.
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
    """A string as Erlang prints it: its octets one by one where one of them is no Latin-1 text."""
    octets = text.encode("utf-8", "surrogateescape")
    for octet in octets:
        if octet not in _ESCAPES and not (0x20 <= octet < 0x7F or octet >= 0xA0):
            return "[" + ",".join([str(octet) for octet in octets]) + "]"
    return '"' + "".join([_ESCAPES.get(ord(char), char) for char in text]) + '"'


def erlang_binary(text: str) -> str:
    """A binary as Erlang prints it."""
    shown = erlang_string(text)
    return f"<<{shown[1:-1]}>>" if shown.startswith("[") else f"<<{shown}>>"


def _unacceptable(field: Field) -> str:
    return f"{{unacceptable_type,{kind_name(field.kind)}}}"


class ValueCheck:
    """What a value may be. This one takes anything."""

    def fault(self, field: Field, arguments: Table) -> str:
        """RabbitMQ's reason to refuse the value, or the empty string."""
        return ""


class IntegerCheck(ValueCheck):
    """Any whole number, of any of the integer types."""

    def fault(self, field: Field, arguments: Table) -> str:
        if field.kind in INTEGERS:
            return ""
        return erlang_string(f"expected integer, got {kind_name(field.kind)}")


class RangeCheck(IntegerCheck):
    """A whole number from `least` (0 or 1) to `most`."""

    def __init__(self, least: int, most: int, over: str) -> None:
        self.least = least
        self.most = most
        self.over = over  # the reason where the number is greater than `most`

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
    """1 or 2: the storage formats of RabbitMQ's classic queues. They mean nothing here."""

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
    """One of some words; a reason that ends with a space is a sentence about the word."""

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
    """Text, and only beside a dead-letter exchange."""

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
    """Text that is neither empty nor long."""

    def fault(self, field: Field, arguments: Table) -> str:
        value = field.value
        if field.kind != LONGSTR or not isinstance(value, str):
            return _unacceptable(field)
        size = len(value.encode("utf-8", "surrogateescape"))
        return "" if 0 < size <= NAME_BYTES_MAX else "invalid_name"


class StreamFilterCheck(ValueCheck):
    """Text or an array of texts."""

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
    """A table of `header`, `window_ms` and `size`, each of which may be missing."""

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
    """The milliseconds of an age such as 7D, at most `TIME_MS_MAX` of them; 0 where it is none."""
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
NOT_NEGATIVE: Final = RangeCheck(0, _NO_MAX, "")
POSITIVE: Final = RangeCheck(1, _NO_MAX, "")
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
        self.kinds = kinds  # the kinds of queue that take it; the others refuse it
        self.check = check


_CLASSIC: Final = (CLASSIC,)
_QUORUM: Final = (QUORUM,)
_STREAM: Final = (STREAM,)
_BOTH: Final = (CLASSIC, QUORUM)
_STRATEGIES: Final = ("at-most-once", "at-least-once")
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_RETRY_TYPES: Final = ("disabled", "all", "failed", "returned")
_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders", "min-masters")
_MASTERS: Final = ("client-local", "random", "min-masters")
_MODES: Final = ("default", "lazy")

QUEUE_KIND: Final = ChoiceCheck(QUEUE_KINDS, "unsupported queue type ")

QUEUE_RULES: Final[list[ArgumentRule]] = [
    ArgumentRule("x-expires", _BOTH, RangeCheck(1, TIME_MS_MAX, "value_too_large")),
    ArgumentRule("x-message-ttl", _BOTH, RangeCheck(0, TIME_MS_MAX, "value_too_large")),
    ArgumentRule("x-dead-letter-exchange", _BOTH, ANYTHING),  # its type is checked before all else
    ArgumentRule("x-dead-letter-routing-key", _BOTH, DeadLetterKeyCheck()),
    ArgumentRule(
        "x-dead-letter-strategy", _QUORUM, ChoiceCheck(_STRATEGIES, "invalid_dlx_strategy")
    ),
    ArgumentRule("x-max-length", _BOTH, NOT_NEGATIVE),
    ArgumentRule("x-max-length-bytes", QUEUE_KINDS, NOT_NEGATIVE),
    ArgumentRule("x-max-in-memory-length", _QUORUM, NOT_NEGATIVE),
    ArgumentRule("x-max-in-memory-bytes", _QUORUM, NOT_NEGATIVE),
    ArgumentRule("x-max-priority", _CLASSIC, RangeCheck(0, 255, "max_value_exceeded")),
    ArgumentRule("x-overflow", _BOTH, ChoiceCheck(_OVERFLOWS, "invalid_overflow")),
    ArgumentRule("x-queue-mode", _CLASSIC, ChoiceCheck(_MODES, "unsupported queue mode ")),
    ArgumentRule("x-queue-version", _CLASSIC, QueueVersionCheck()),
    ArgumentRule("x-single-active-consumer", _BOTH, FLAG),
    ArgumentRule(
        "x-queue-type", QUEUE_KINDS, QUEUE_KIND
    ),  # read before all others: it says which apply
    ArgumentRule("x-quorum-initial-group-size", _QUORUM, POSITIVE),
    ArgumentRule("x-max-age", _STREAM, AgeCheck()),
    ArgumentRule("x-stream-max-segment-size-bytes", _STREAM, NOT_NEGATIVE),
    ArgumentRule("x-stream-filter-size-bytes", _STREAM, NOT_NEGATIVE),
    ArgumentRule("x-initial-cluster-size", _STREAM, POSITIVE),
    # RabbitMQ: a limit that is no number is taken for the default, a negative one for none.
    ArgumentRule("x-delivery-limit", _BOTH, ANYTHING),
    ArgumentRule(
        "x-queue-leader-locator", QUEUE_KINDS, ChoiceCheck(_LOCATORS, "invalid_queue_locator_arg")
    ),
    ArgumentRule(
        "x-queue-master-locator", _CLASSIC, ChoiceCheck(_MASTERS, "invalid_queue_locator_arg")
    ),
    ArgumentRule("x-consumer-timeout", _BOTH, NOT_NEGATIVE),
    ArgumentRule("x-consumer-disconnected-timeout", _QUORUM, NOT_NEGATIVE),
    # RabbitMQ checks the next three in policies only; here a mistake in them is told.
    ArgumentRule(
        "x-delayed-retry-type", _BOTH, ChoiceCheck(_RETRY_TYPES, "invalid_delayed_retry_type")
    ),
    ArgumentRule("x-delayed-retry-min", _BOTH, POSITIVE),
    ArgumentRule("x-delayed-retry-max", _BOTH, POSITIVE),
    # Leveret's own: the queue honours x-delay, remembers in a stream, takes nothing twice.
    ArgumentRule("x-delayed", _BOTH, FLAG),
    ArgumentRule("x-remember", _BOTH, NAME),
    ArgumentRule("x-deduplication", QUEUE_KINDS, DEDUPLICATION),
]

# What the partitions of a super stream take over from it.
STREAM_ARGUMENTS: Final = (
    "x-max-length-bytes",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
)

CONSUMER_RULES: Final[list[ArgumentRule]] = [
    ArgumentRule("x-priority", _BOTH, INTEGER),
    ArgumentRule("x-cancel-on-ha-failover", _BOTH, FLAG),
    ArgumentRule("x-consumer-timeout", _BOTH, NOT_NEGATIVE),
    ArgumentRule("x-stream-offset", _STREAM, StreamOffsetCheck()),
    ArgumentRule("x-stream-filter", _STREAM, StreamFilterCheck()),
    ArgumentRule("x-stream-match-unfiltered", _STREAM, FLAG),
    ArgumentRule("x-stream-cursor", _STREAM, NAME),  # Leveret's own
]
