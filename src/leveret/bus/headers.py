"""The headers of the bus, and the retry count that they add up to.

The retry count of a message is the number of rejects that the broker counts in `x-death`, plus the
number in `x-retry-count`. The second is needed because a delay step is reached by a publish, and
RabbitMQ 4 does not continue an `x-death` that was published. Code that publishes a message again
calls `copy_headers` or `redrive_headers`, so that the sum stays right on every broker.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

Headers = dict[str, Any]

DEATHS: Final = "x-death"
RETRY_COUNT: Final = "x-retry-count"
ORIGINAL_QUEUE: Final = "x-original-queue"
FINAL_STATUS_CODE: Final = "x-final-status-code"
FINAL_ERROR: Final = "x-final-error"
FINAL_RETRY_COUNT: Final = "x-final-retry-count"
REDRIVE_COUNT: Final = "x-redrive-count"
DEATH_HISTORY: Final = "x-death-history"  # an x-death that the broker must not continue
ORIGINAL_EXCHANGE: Final = "x-original-exchange"  # to which the event was published
ORIGINAL_ROUTING_KEY: Final = "x-original-routing-key"
ORIGINAL_USER: Final = "x-original-user-id"  # a copy may not carry the user id of another user
DIED_AT: Final = "x-died-at"  # when it became a dead letter; x-death has only first deaths
UNANSWERED_COUNT: Final = "x-unanswered-count"  # deliveries that came back without an answer
COPY_COUNT: Final = "x-copy-count"  # copies that the bus made, one of the other
DELIVERY_COUNTS: Final = ("x-delivery-count", "x-acquired-count")  # of quorum queues
PROCESS_AFTER_DELAY: Final = "processAfterDelayMs"
RETRY_AT_MS: Final = "x-retry-at-ms"  # of a retry with jitter: not before this time
PUBLISHED_MS: Final = "x-published-ms"  # AMQP's own timestamp has whole seconds
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

REJECTED: Final = "rejected"
ERROR_CHARS_MAX: Final = 1_000  # of x-final-error
COUNT_MAX: Final = 1_000_000_000  # a larger number from a peer is not a count

# Headers that a redrive removes. The time of the last death stays, as a record.
_DEAD_LETTER_HEADERS: Final = (
    ORIGINAL_QUEUE,
    FINAL_STATUS_CODE,
    FINAL_ERROR,
    FINAL_RETRY_COUNT,
    UNANSWERED_COUNT,
)
# The broker's headers about the first and last death. They start again with a new x-death.
_DEATH_SUMMARY: Final = tuple(
    f"x-{which}-death-{what}"
    for which in ("first", "last")
    for what in ("exchange", "queue", "reason")
)


def count_of(value: object) -> int:
    """Return a count from a peer, or 0 if the value is not a count."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= COUNT_MAX else 0


def reject_count(headers: Mapping[str, Any], queue: str) -> int:
    """Return how often x-death says that this queue's consumers rejected the message."""
    deaths = headers.get(DEATHS)
    if not isinstance(deaths, list):
        return 0
    return sum(
        count_of(death.get("count"))
        for death in deaths
        if isinstance(death, dict)
        and death.get("queue") == queue
        and death.get("reason") == REJECTED
    )


def retry_count(headers: Mapping[str, Any], queue: str) -> int:
    """Return how often a message of this queue was retried."""
    return reject_count(headers, queue) + count_of(headers.get(RETRY_COUNT))


def return_count(headers: Mapping[str, Any], *, is_redelivered: bool) -> int:
    """Return how often a message came back to its queue since it was published there.

    Quorum queues count it. Of other queues only the flag is known.
    """
    counted = max(count_of(headers.get(name)) for name in DELIVERY_COUNTS)
    return max(counted, int(is_redelivered))


def is_counted(headers: Mapping[str, Any]) -> bool:
    """Return True if the queue counts how often a message came back."""
    return any(name in headers for name in DELIVERY_COUNTS)


def original_address(
    headers: Mapping[str, Any], queue: str, exchange: str, routing_key: str
) -> tuple[str, str]:
    """Return the exchange and routing key of the first publish.

    A copy has them in its headers, and a message that came back by a reject in x-death. Otherwise
    they are those of the delivery.
    """
    known = headers.get(ORIGINAL_EXCHANGE), headers.get(ORIGINAL_ROUTING_KEY)
    if isinstance(known[0], str) and isinstance(known[1], str):
        return known[0], known[1]
    deaths = headers.get(DEATHS)
    for death in deaths if isinstance(deaths, list) else ():
        if isinstance(death, dict) and death.get("queue") == queue:
            keys = death.get("routing-keys")
            if death.get("reason") == REJECTED and isinstance(keys, list) and keys:
                return str(death.get("exchange", "")), str(keys[0])
    return exchange, routing_key


def copy_headers(headers: Mapping[str, Any], queue: str, count: int, *, continues: bool) -> Headers:
    """Return the headers of a copy that has `count` retries when it reaches the queue.

    `continues` says whether the broker continues an x-death that was published; Leveret and
    RabbitMQ 3 do. If not, the deaths are kept under another name.
    """
    copy = dict(headers)
    known = reject_count(headers, queue)
    if not continues or known > count:
        if (deaths := copy.pop(DEATHS, None)) is not None:
            copy[DEATH_HISTORY] = deaths
        for name in _DEATH_SUMMARY:
            copy.pop(name, None)
        known = 0
    copy[RETRY_COUNT] = count - known
    return copy


def dead_letter_headers(
    headers: Mapping[str, Any],
    queue: str,
    count: int,
    code: int | None,
    error: str | None,
    died_ms: int,
) -> Headers:
    """Return the headers of a dead letter: all that it had, and how and when it ended."""
    found: Headers = {**headers, ORIGINAL_QUEUE: queue, FINAL_RETRY_COUNT: count}
    found[DIED_AT] = datetime.fromtimestamp(died_ms // 1000, UTC)
    if code is not None:
        found[FINAL_STATUS_CODE] = code
    if error is not None:
        found[FINAL_ERROR] = error[:ERROR_CHARS_MAX]
    return found


def redrive_headers(
    headers: Mapping[str, Any], queue: str, *, continues: bool, reset: bool = False
) -> Headers:
    """Return the headers with which a dead letter goes back to its queue.

    Its retry count continues, or starts at zero with `reset`.
    """
    kept = {name: value for name, value in headers.items() if name not in _DEAD_LETTER_HEADERS}
    final = headers.get(FINAL_RETRY_COUNT)
    count = retry_count(headers, queue) if final is None else count_of(final)
    found = copy_headers(kept, queue, 0 if reset else count, continues=continues)
    found[REDRIVE_COUNT] = count_of(headers.get(REDRIVE_COUNT)) + 1
    return found


def continues_deaths(server_properties: Mapping[str, Any]) -> bool:
    """Return True if this broker continues an x-death that a client published."""
    major = _rabbitmq_major(server_properties)
    return major is None or major < 4


def keeps_requeue_order(server_properties: Mapping[str, Any]) -> bool:
    """Return True if quorum queues of this broker keep the order of messages requeued together."""
    major = _rabbitmq_major(server_properties)
    return major is None or major >= 4


def _rabbitmq_major(server_properties: Mapping[str, Any]) -> int | None:
    """Return the major version of RabbitMQ; None for another broker."""
    # Leveret gives its product as RabbitMQ, because clients check it, and its own name as platform.
    is_leveret = "Leveret" in str(server_properties.get("platform", ""))
    if is_leveret or server_properties.get("product") != "RabbitMQ":
        return None
    major = str(server_properties.get("version", "")).partition(".")[0]
    return int(major) if major.isdigit() else None
