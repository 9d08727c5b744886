"""Turn the arguments of queues, consumers and exchanges into settings.

`queue_settings` and `consumer_settings` check the table that a client sent, and return an object
whose fields are in range. No other code reads arguments. The rules and the error texts are in
`leveret.engine.arguments.rules`. A redeclaration is compared in
`leveret.engine.arguments.equivalence`.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.rules import (
    CLASSIC,
    CONSUMER_RULES,
    DEDUPLICATION,
    NAME,
    QUEUE_KIND,
    QUEUE_RULES,
    QUORUM,
    TIME_MS_MAX,
    ArgumentRule,
    age_ms,
)
from leveret.errors import PreconditionFailedError
from leveret.wire.scan import LONGSTR
from leveret.wire.tables import INTEGERS, Field, Table, kind_name

DROP_HEAD: Final = 0
REJECT_PUBLISH: Final = 1
REJECT_PUBLISH_DLX: Final = 2

QUORUM_PRIORITY_MAX: Final = 31
QUORUM_PRIORITY: Final = 4  # of a message without a priority
QUORUM_DELIVERY_LIMIT: Final = 20
# A job has a priority of 32 bits, and the lowest is the most urgent. The jobs service pushes
# JOB_PRIORITY - priority, which no priority octet of an AMQP client can be.
JOB_PRIORITY: Final = 1 << 40
SEGMENT_BYTES: Final = 64 * 1024 * 1024
SEGMENT_BYTES_MIN: Final = 1024 * 1024  # of a stream with a size limit and no segment size
SEGMENTS_OF_LIMIT: Final = 8
SEGMENT_BYTES_MAX: Final = 3_000_000_000
FILTER_BYTES_MIN: Final = 16
FILTER_BYTES_MAX: Final = 255

# Defaults of `x-deduplication`
DEDUPLICATION_HEADER: Final = "x-deduplication-id"
DEDUPLICATION_WINDOW_MS: Final = 600_000
DEDUPLICATION_SIZE: Final = 100_000

_OVERFLOWS: Final[dict[str, int]] = {
    "drop-head": DROP_HEAD,
    "reject-publish": REJECT_PUBLISH,
    "reject-publish-dlx": REJECT_PUBLISH_DLX,
}
# Prefix of the names that the server gives to queues that are declared with an empty name.
_SERVER_NAMED: Final = "amq.gen-"


class DeduplicationSettings:
    """The keys of published messages that a queue or exchange remembers, and for how long."""

    def __init__(self, table: Table) -> None:
        # The header whose value is the key; `message_id` means the property of that name.
        self.header: str = _maybe_text(table, "header") or DEDUPLICATION_HEADER
        self.window_ms: i64 = _number(table, "window_ms", DEDUPLICATION_WINDOW_MS)
        self.size: i64 = _number(table, "size", DEDUPLICATION_SIZE)  # most keys in memory


class QueueSettings:
    """The settings of a queue. -1 means none; times are at most ten years."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # classic, quorum or stream
        self.ttl_ms: i64 = -1
        self.expires_ms: i64 = -1
        self.max_length: i64 = -1
        self.max_bytes: i64 = -1
        self.overflow: i64 = DROP_HEAD
        self.dead_letter_exchange: str | None = None
        self.dead_letter_key: str | None = None
        # Only with the strategy at-least-once, a dead-letter exchange and reject-publish together.
        self.dead_letter_at_least_once: bool = False
        self.single_active: bool = False
        self.priority_max: i64 = -1  # priorities are strict, 0 to this
        self.has_jobs: bool = False  # a topic of the jobs service
        self.lazy: bool = False
        self.delivery_limit: i64 = -1
        self.consumer_timeout_ms: i64 = -1  # -1: the timeout of the node
        self.retry_type: str = "disabled"  # or all, failed, returned
        self.retry_min_ms: i64 = 0
        self.retry_max_ms: i64 = 0  # never less than retry_min_ms
        self.delayed: bool = False  # obeys the header x-delay
        self.deduplication: DeduplicationSettings | None = None
        self.max_age_ms: i64 = -1
        self.segment_bytes: i64 = SEGMENT_BYTES
        self.filter_bytes: i64 = FILTER_BYTES_MIN

    def clamp(self, priority: i64) -> i64:
        """Return the priority that a message gets in the queue; -1 = it has none.

        In a queue of jobs, the priority octet of an AMQP client is negated to a job priority.
        """
        if self.has_jobs:
            job_priority = JOB_PRIORITY - priority if priority > 255 else -max(priority, 0)
            return -1 - job_priority
        if priority < 0:
            return QUORUM_PRIORITY if self.kind == QUORUM else 0
        return min(priority, self.priority_max)

    def retry_delay_ms(self, failures: i64, failed: bool) -> i64:
        """Return how long a message that came back waits.

        RabbitMQ 4.3: linear back-off by failures, for the kinds of return in `retry_type`.
        """
        if self.retry_type == "disabled":
            return 0
        if self.retry_type != "all" and failed != (self.retry_type == "failed"):
            return 0
        return min(self.retry_min_ms * max(1, failures), self.retry_max_ms)


class ConsumerSettings:
    """The settings of a consumer."""

    def __init__(self) -> None:
        self.priority: i64 = 0
        self.timeout_ms: i64 = -1  # -1: the timeout of the queue
        self.stream_offset: Field | None = None  # as sent; None means next
        self.stream_filters: list[str] = []
        self.stream_cursor: str = ""  # name of a position that the broker stores
        self.match_unfiltered: bool = False


def queue_settings(
    name: str,
    vhost: str,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Table,
) -> QueueSettings:
    """Return the settings of a new queue after all checks, in RabbitMQ's order.

    Raise PreconditionFailedError for a wrong property or argument.
    """
    what = f"queue '{name}' in vhost '{vhost}'"
    _require_name_type("x-dead-letter-exchange", what, arguments)
    kind = _queue_kind(what, arguments)
    if kind != CLASSIC and (not name or name.startswith(_SERVER_NAMED)):
        raise PreconditionFailedError(
            f"Cannot declare a server-named queue for type rabbit_{kind}_queue"
        )
    _require_arguments(QUEUE_RULES, kind, what, arguments)
    if kind != CLASSIC:
        _require_properties(what, durable, exclusive, auto_delete)
    _require_retry(what, arguments)
    return settings_of(kind, arguments)


def settings_of(kind: str, arguments: Table) -> QueueSettings:
    """Return the settings for arguments that were checked, or combined with a policy."""
    settings = QueueSettings(kind)
    _read_limits(settings, arguments)
    _read_dead_lettering(settings, arguments)
    _read_delivery(settings, arguments)
    _read_retry(settings, arguments)
    _read_stream(settings, arguments)
    settings.deduplication = _deduplication(arguments)
    return settings


def with_default_kind(kind: str, durable: bool, auto_delete: bool, arguments: Table) -> Table:
    """Add the vhost's default kind to the arguments of a declaration without a kind.

    RabbitMQ: if the default does not fit the queue's properties, the queue is classic.
    """
    if not kind or "x-queue-type" in arguments or not durable or auto_delete:
        return arguments
    return {**arguments, "x-queue-type": Field(LONGSTR, kind)}


def consumer_settings(
    queue_name: str, vhost: str, queue_kind: str, arguments: Table
) -> ConsumerSettings:
    """Return the settings of a consumer; raise PreconditionFailedError for a wrong argument."""
    what = f"queue '{queue_name}' in vhost '{vhost}'"
    _require_arguments(CONSUMER_RULES, queue_kind, what, arguments)
    settings = ConsumerSettings()
    settings.priority = _number(arguments, "x-priority", 0)
    settings.timeout_ms = _time_ms(arguments, "x-consumer-timeout")
    settings.stream_offset = arguments.get("x-stream-offset")
    settings.stream_filters = _text_list(arguments, "x-stream-filter")
    settings.match_unfiltered = _flag(arguments, "x-stream-match-unfiltered")
    settings.stream_cursor = _maybe_text(arguments, "x-stream-cursor") or ""
    return settings


def exchange_alternate(name: str, vhost: str, arguments: Table) -> str | None:
    """Return the name of the alternate exchange, or None.

    Raise PreconditionFailedError if it is not a text.
    """
    what = f"exchange '{name}' in vhost '{vhost}'"
    _require_name_type("alternate-exchange", what, arguments)
    return _maybe_text(arguments, "alternate-exchange")


def remembering_stream(what: str, vhost: str, arguments: Table) -> str:
    """Return the stream to which a queue or exchange writes life events, or the empty string.

    Raise PreconditionFailedError if it is not a valid name.
    """
    field = arguments.get("x-remember")
    if field is None:
        return ""
    fault = NAME.fault(field, arguments)
    if fault:
        raise _invalid("x-remember", f"{what} in vhost '{vhost}'", fault)
    return str(field.value)


def exchange_deduplication(
    name: str, vhost: str, internal: bool, arguments: Table
) -> DeduplicationSettings | None:
    """Return the deduplication settings of an exchange, or None.

    Raise PreconditionFailedError for wrong settings, and for an internal exchange: clients cannot
    publish to it, so it would never remember a key.
    """
    field = arguments.get("x-deduplication")
    if field is None:
        return None
    fault = "internal_exchange" if internal else DEDUPLICATION.fault(field, arguments)
    if fault:
        raise _invalid("x-deduplication", f"exchange '{name}' in vhost '{vhost}'", fault)
    return _deduplication(arguments)


def _require_name_type(key: str, what: str, arguments: Table) -> None:
    field = arguments.get(key)
    if field is not None and field.kind != LONGSTR:
        raise PreconditionFailedError(
            f"invalid type '{kind_name(field.kind)}' for arg '{key}' in {what}"
        )


def _queue_kind(what: str, arguments: Table) -> str:
    field = arguments.get("x-queue-type")
    if field is None:
        return CLASSIC
    fault = QUEUE_KIND.fault(field, arguments)
    if fault:
        raise _invalid("x-queue-type", what, fault)
    return str(field.value)


def _require_arguments(rules: list[ArgumentRule], kind: str, what: str, arguments: Table) -> None:
    """Raise PreconditionFailedError for the first wrong argument.

    The values of known arguments are checked first, in the order of the rules. Then arguments that
    the kind of queue refuses are reported, in the order of the client.
    """
    for rule in rules:
        field = arguments.get(rule.name)
        if field is not None and kind in rule.kinds:
            fault = rule.check.fault(field, arguments)
            if fault:
                raise _invalid(rule.name, what, fault)
    refused = {rule.name for rule in rules if kind not in rule.kinds}
    for name in arguments:
        if name in refused:
            raise PreconditionFailedError(
                f"invalid arg '{name}' for {what} of queue type rabbit_{kind}_queue"
            )


def _require_properties(what: str, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    """Raise PreconditionFailedError unless a quorum queue or stream is durable and shared."""
    fault = "auto-delete" if auto_delete else "exclusive-owner" if exclusive else ""
    if not fault and not durable:
        fault = "non-durable"
    if fault:
        raise PreconditionFailedError(f"invalid property '{fault}' for {what}")


def _invalid(key: str, what: str, reason: str) -> PreconditionFailedError:
    return PreconditionFailedError(f"invalid arg '{key}' for {what}: {reason}")


def _read_limits(settings: QueueSettings, arguments: Table) -> None:
    settings.ttl_ms = _time_ms(arguments, "x-message-ttl")
    settings.expires_ms = _time_ms(arguments, "x-expires")
    settings.max_length = _number(arguments, "x-max-length", -1)
    settings.max_bytes = _number(arguments, "x-max-length-bytes", -1)
    settings.overflow = _OVERFLOWS[_maybe_text(arguments, "x-overflow") or "drop-head"]
    settings.lazy = _maybe_text(arguments, "x-queue-mode") == "lazy"


def _read_dead_lettering(settings: QueueSettings, arguments: Table) -> None:
    settings.dead_letter_exchange = _maybe_text(arguments, "x-dead-letter-exchange")
    settings.dead_letter_key = _maybe_text(arguments, "x-dead-letter-routing-key")
    settings.dead_letter_at_least_once = (
        _maybe_text(arguments, "x-dead-letter-strategy") == "at-least-once"
        and settings.dead_letter_exchange is not None
        and settings.overflow == REJECT_PUBLISH
    )


def _read_delivery(settings: QueueSettings, arguments: Table) -> None:
    is_quorum = settings.kind == QUORUM
    settings.single_active = _flag(arguments, "x-single-active-consumer")
    settings.priority_max = (
        QUORUM_PRIORITY_MAX if is_quorum else _number(arguments, "x-max-priority", -1)
    )
    if not is_quorum and _flag(arguments, "x-jobs"):
        settings.has_jobs = True
        settings.priority_max = JOB_PRIORITY
    limit = _number(arguments, "x-delivery-limit", QUORUM_DELIVERY_LIMIT if is_quorum else -1)
    settings.delivery_limit = max(limit, -1)
    settings.consumer_timeout_ms = _time_ms(arguments, "x-consumer-timeout")
    settings.delayed = _flag(arguments, "x-delayed")


def _require_retry(what: str, arguments: Table) -> None:
    """Raise PreconditionFailedError for a retry type without a minimum, or a maximum below it."""
    least = _time_ms(arguments, "x-delayed-retry-min")
    most = _time_ms(arguments, "x-delayed-retry-max")
    if least < 0:
        if (_maybe_text(arguments, "x-delayed-retry-type") or "disabled") != "disabled":
            raise _invalid("x-delayed-retry-type", what, "no_delayed_retry_min_defined")
    elif 0 < most < least:
        raise _invalid("x-delayed-retry-max", what, "delayed_retry_max_less_than_min")


def _read_retry(settings: QueueSettings, arguments: Table) -> None:
    """Read the delays of retries; without a maximum, the minimum is the maximum."""
    settings.retry_type = _maybe_text(arguments, "x-delayed-retry-type") or "disabled"
    least = _time_ms(arguments, "x-delayed-retry-min")
    most = _time_ms(arguments, "x-delayed-retry-max")
    if least >= 0:
        settings.retry_min_ms = least
        settings.retry_max_ms = most if most > 0 else least


def _read_stream(settings: QueueSettings, arguments: Table) -> None:
    settings.max_age_ms = age_ms(_maybe_text(arguments, "x-max-age") or "") or -1
    settings.segment_bytes = _number(
        arguments, "x-stream-max-segment-size-bytes", _segment_bytes(settings.max_bytes)
    )
    if settings.segment_bytes > SEGMENT_BYTES_MAX:
        raise PreconditionFailedError("Exceeded max value for x-stream-max-segment-size-bytes")
    settings.filter_bytes = _number(arguments, "x-stream-filter-size-bytes", FILTER_BYTES_MIN)
    if not FILTER_BYTES_MIN <= settings.filter_bytes <= FILTER_BYTES_MAX:
        raise PreconditionFailedError("Invalid value for x-stream-filter-size-bytes")


def _segment_bytes(max_bytes: int) -> int:
    """Return the segment size for a size limit: segments are deleted whole, so it is a fraction."""
    if max_bytes < 0:
        return SEGMENT_BYTES
    return min(SEGMENT_BYTES, max(max_bytes // SEGMENTS_OF_LIMIT, SEGMENT_BYTES_MIN))


# The functions below run after the checks. A value of another type belongs to an argument that is
# not checked, and is ignored.


def _number(arguments: Table, key: str, default: int) -> int:
    field = arguments.get(key)
    if field is None or field.kind not in INTEGERS:
        return default
    assert isinstance(field.value, int)
    return field.value


def _time_ms(arguments: Table, key: str) -> int:
    """Return a time in milliseconds; -1 = none.

    RabbitMQ: some times have no limit. Here all have one, so that no deadline can overflow.
    """
    return min(_number(arguments, key, -1), TIME_MS_MAX)


def _maybe_text(arguments: Table, key: str) -> str | None:
    field = arguments.get(key)
    if field is None or field.kind != LONGSTR:
        return None
    return str(field.value)


def _flag(arguments: Table, key: str) -> bool:
    field = arguments.get(key)
    return field is not None and field.value is True


def _deduplication(arguments: Table) -> DeduplicationSettings | None:
    field = arguments.get("x-deduplication")
    if field is None or not isinstance(field.value, dict):
        return None
    return DeduplicationSettings(field.value)


def _text_list(arguments: Table, key: str) -> list[str]:
    field = arguments.get(key)
    if field is None:
        return []
    if isinstance(field.value, list):
        return [str(item.value) for item in field.value]
    return [str(field.value)]
