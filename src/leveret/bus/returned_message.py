"""Decide about messages that came back to their queue without an answer.

A message comes back if the process that held it ended, hung, or lost its connection. Perhaps the
message itself is the reason: it ends every process that handles it. All other messages that the
process held come back with it. So a message that came back is set aside in a queue of its own, from
which a process takes one message at a time. If a message of this queue comes back, it was the
reason. Each return counts as an attempt, and at the limit the message becomes a dead letter before
it is handled again.

A broker counts too, and at its own limit moves the message to the retry queue. From there it would
come back without a rejection, which brokers take for an endless cycle: they drop the message. So a
message that came back twice is copied, and the broker counts the copy from zero.

The module is pure.
"""

from typing import Final

from leveret.bus import headers as bus_headers
from leveret.bus.handler_result import (
    TOO_EARLY,
    Action,
    Decision,
    DeliveryOutcome,
    HandlerResult,
)
from leveret.bus.received_message import ReceivedMessage

RENEW_AFTER: Final = 2  # returns; the limits of brokers are 20 by default
# A restart of the broker returns messages of healthy processes too, so fewer prove nothing.
UNANSWERED_MIN: Final = 3


def maybe_decide(
    message: ReceivedMessage, retries_max: int, *, is_own: bool, may_set_aside: bool
) -> tuple[Decision, HandlerResult] | None:
    """Return the decision about a message that came back, or None if it may be handled.

    `is_own` says that this process had the message and called no handler for it.
    """
    returns = message.returns
    if not returns:
        return None
    if is_own:
        return (Decision(Action.RENEW), TOO_EARLY) if returns >= RENEW_AFTER else None
    if _is_first_return(message):
        return None
    unanswered = message.unanswered + returns
    is_proved = message.is_alone or not may_set_aside
    is_over = unanswered >= UNANSWERED_MIN and message.delivery.retry_count + returns > retries_max
    if is_proved and is_over:
        return Decision(Action.DEAD_LETTER, is_exhausted=True), _unanswered(unanswered)
    return Decision(Action.SET_ASIDE, unanswered=returns), _unanswered(unanswered)


def _is_first_return(message: ReceivedMessage) -> bool:
    """Return True if the queue counts returns, and this is the first one.

    The message is handled in its place, so that a lost connection does not change the order. Of
    other queues only a flag is known, so the first return must be counted in a copy.
    """
    is_new = message.unanswered == 0 and message.returns < RENEW_AFTER
    return is_new and bus_headers.is_counted(message.headers)


def _unanswered(count: int) -> HandlerResult:
    text = f"{count} deliveries came back without an answer: each time the process ended or hung"
    return HandlerResult(DeliveryOutcome.RETRY, None, f"UnansweredError: {text}")
