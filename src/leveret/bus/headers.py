"""The headers of the bus, and the count of retries that they make.

A message was tried again as often as the broker counts rejects of its queue in `x-death`, plus what
`x-retry-count` says. The second is for what `x-death` cannot say: a delay step is reached by a
publish, and RabbitMQ 4 does not continue an `x-death` that was published. So whoever publishes a
message once more calls `carried` or `redriven`, and the sum stays right on every broker.
"""

from collections.abc import Mapping
from typing import Any, Final

Headers = dict[str, Any]

DEATHS: Final = "x-death"
RETRY_COUNT: Final = "x-retry-count"
ORIGINAL_QUEUE: Final = "x-original-queue"
FINAL_STATUS_CODE: Final = "x-final-status-code"
FINAL_ERROR: Final = "x-final-error"
FINAL_RETRY_COUNT: Final = "x-final-retry-count"
REDRIVE_COUNT: Final = "x-redrive-count"
DEATH_HISTORY: Final = "x-death-history"  # deaths that the broker shall not count on from
PROCESS_AFTER_DELAY: Final = "processAfterDelayMs"
PUBLISHED_MS: Final = "x-published-ms"  # AMQP's own timestamp has seconds
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

REJECTED: Final = "rejected"
ERROR_TEXT_MAX: Final = 1_000  # of x-final-error, in characters
COUNT_MAX: Final = 1_000_000_000  # a peer's number beyond it is no count

_OF_DEAD_LETTERS: Final = (ORIGINAL_QUEUE, FINAL_STATUS_CODE, FINAL_ERROR, FINAL_RETRY_COUNT)
# The broker's own story of the first and last death, told anew where x-death starts anew.
_DEATH_STORY: Final = tuple(
    f"x-{which}-death-{what}"
    for which in ("first", "last")
    for what in ("exchange", "queue", "reason")
)


def number(value: object) -> int:
    """A count from a peer: 0 where it is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= COUNT_MAX else 0


def rejects(headers: Mapping[str, Any], queue: str) -> int:
    """How often the queue's messages were rejected, by x-death."""
    deaths = headers.get(DEATHS)
    if not isinstance(deaths, list):
        return 0
    return sum(
        number(death.get("count"))
        for death in deaths
        if isinstance(death, dict)
        and death.get("queue") == queue
        and death.get("reason") == REJECTED
    )


def retry_count(headers: Mapping[str, Any], queue: str) -> int:
    """How often a message of this queue was tried again."""
    return rejects(headers, queue) + number(headers.get(RETRY_COUNT))


def carried(headers: Mapping[str, Any], queue: str, count: int, *, continues: bool) -> Headers:
    """The headers of a copy that shall count as `count` retries when it comes to the queue.

    `continues` says whether the broker counts on from an x-death that was published: Leveret and
    RabbitMQ 3 do. Where it does not, the deaths are kept under another name.
    """
    copy = dict(headers)
    known = rejects(headers, queue)
    if not continues or known > count:
        if (deaths := copy.pop(DEATHS, None)) is not None:
            copy[DEATH_HISTORY] = deaths
        for name in _DEATH_STORY:
            copy.pop(name, None)
        known = 0
    copy[RETRY_COUNT] = count - known
    return copy


def dead_letter(
    headers: Mapping[str, Any], queue: str, count: int, code: int | None, error: str | None
) -> Headers:
    """The headers of a dead letter: all it had, x-death with them, and how it ended."""
    found: Headers = {**headers, ORIGINAL_QUEUE: queue, FINAL_RETRY_COUNT: count}
    if code is not None:
        found[FINAL_STATUS_CODE] = code
    if error is not None:
        found[FINAL_ERROR] = error[:ERROR_TEXT_MAX]
    return found


def redriven(
    headers: Mapping[str, Any], queue: str, *, continues: bool, reset: bool = False
) -> Headers:
    """The headers with which a dead letter goes back to its queue.

    Its retries count on from where they were, or from zero.
    """
    kept = {name: value for name, value in headers.items() if name not in _OF_DEAD_LETTERS}
    final = headers.get(FINAL_RETRY_COUNT)
    count = retry_count(headers, queue) if final is None else number(final)
    found = carried(kept, queue, 0 if reset else count, continues=continues)
    found[REDRIVE_COUNT] = number(headers.get(REDRIVE_COUNT)) + 1
    return found


def continues_deaths(server_properties: Mapping[str, Any]) -> bool:
    """Whether this broker counts on from an x-death that a client published."""
    # Leveret says that it is RabbitMQ, as clients choose by that name, and who it is beside it.
    is_leveret = "Leveret" in str(server_properties.get("platform", ""))
    if is_leveret or server_properties.get("product") != "RabbitMQ":
        return True
    major = str(server_properties.get("version", "")).partition(".")[0]
    return not major.isdigit() or int(major) < 4
