"""The result of a handler, and the action that the bus takes for it.

Return values and exceptions of a handler become a `HandlerResult`. `decide` turns it into one
action: ack, reject (the broker moves the message to the retry queue), delay, wait or dead letter.
The module is pure: the real bus and the fake one for tests both use it.
"""

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from leveret.bus.errors import (
    DecodeError,
    PermanentError,
)
from leveret.bus.retry_policy import RetryPolicy
from leveret.bus.topology import Layout, milliseconds

MAX_RETRIES_EXCEEDED: Final = "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"


class DeliveryOutcome(StrEnum):
    """The outcome that a handler asks for."""

    ACK = "ack"  # the message is handled
    RETRY = "retry"  # it failed: deliver it again after the retry delay
    REQUEUE = "requeue"  # it came too early: deliver it again a little later, without a count
    DEAD_LETTER = "dead_letter"  # it can never be handled: move it to the dead letters at once


@dataclass(frozen=True)
class HandlerResult:
    """The result of handling a delivery."""

    outcome: DeliveryOutcome
    status_code: int | None = None  # the HTTP status that a handler returned
    error: str | None = None  # type and text of the exception that a handler raised

    @property
    def is_success(self) -> bool:
        return self.outcome is DeliveryOutcome.ACK


SUCCESS: Final = HandlerResult(DeliveryOutcome.ACK, HTTPStatus.OK)
TOO_EARLY: Final = HandlerResult(DeliveryOutcome.REQUEUE, HTTPStatus.TOO_EARLY)

HandlerReturn = None | int | DeliveryOutcome | HandlerResult

_TRANSIENT: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.CONFLICT)


def result_of_return(value: HandlerReturn, layout: Layout) -> HandlerResult:
    """Return the result for a value that a handler returned: None is success, a number a status.

    Raise TypeError for other values: True, or a count of rows, is not meant as a status.
    """
    if value is None:
        return SUCCESS
    if isinstance(value, HandlerResult):
        return value
    if isinstance(value, DeliveryOutcome):
        return HandlerResult(value)
    _require_status_code(value)
    return HandlerResult(outcome_of_status(value, layout), int(value))


def _require_status_code(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 100 <= value <= 999:
        text = "None, an HTTP status, a DeliveryOutcome or a HandlerResult"
        raise TypeError(f"a handler returns {text}, not {value!r}")


def outcome_of_status(code: int, layout: Layout) -> DeliveryOutcome:
    """Return the outcome that an HTTP status asks for.

    409 and 429 are transient. Every other 4xx is a fault of the message: it goes to the dead
    letters if the layout has `permanent_to_dlq`, else it is retried like every failure.
    """
    if 200 <= code < 300:
        return DeliveryOutcome.ACK
    if code == HTTPStatus.TOO_EARLY:
        return DeliveryOutcome.REQUEUE
    is_permanent = 400 <= code < 500 and code not in _TRANSIENT and layout.permanent_to_dlq
    return DeliveryOutcome.DEAD_LETTER if is_permanent else DeliveryOutcome.RETRY


def result_of_error(fault: BaseException, layout: Layout) -> HandlerResult:
    """Return the result for an exception of a handler."""
    is_permanent = isinstance(fault, PermanentError | DecodeError) and layout.permanent_to_dlq
    outcome = DeliveryOutcome.DEAD_LETTER if is_permanent else DeliveryOutcome.RETRY
    return HandlerResult(outcome, None, f"{type(fault).__name__}: {fault}")


class Action(StrEnum):
    """The action of the bus for a delivery."""

    ACK = "ack"
    REJECT = "reject"  # the broker moves it to the retry queue
    DELAY = "delay"  # a retry: publish a copy to the queue of a delay step, then ack
    WAIT = "wait"  # no retry: publish a copy to the queue of a delay step, then ack
    RENEW = "renew"  # publish a copy to the own queue, so that the broker counts anew; then ack
    SET_ASIDE = "set_aside"  # publish a copy to the queue of returned messages, then ack
    REQUEUE = "requeue"  # this process cannot handle it: the session is lost, or the bus stops
    DEAD_LETTER = "dead_letter"  # publish a copy to the dead letters, then ack


@dataclass(frozen=True)
class Decision:
    """An action, and the delay after which the message comes back."""

    action: Action
    delay_ms: int = 0
    is_exhausted: bool = False  # a dead letter because all retries are used
    unanswered: int = 0  # deliveries without an answer, which count as retries
    jitter_ms: int = 0  # the delay is up to so much longer, at random


ACKED: Final = Decision(Action.ACK)


def decide(
    result: HandlerResult, retries: int, layout: Layout, policy: RetryPolicy, early_wait_s: float
) -> Decision:
    """Choose the action for a delivery that was retried `retries` times before."""
    if result.outcome is DeliveryOutcome.ACK:
        return ACKED
    if result.outcome is DeliveryOutcome.REQUEUE:
        return Decision(Action.WAIT, milliseconds(early_wait_s))
    if result.outcome is DeliveryOutcome.DEAD_LETTER:
        return Decision(Action.DEAD_LETTER)
    if retries >= policy.retries_max:
        return Decision(Action.DEAD_LETTER, is_exhausted=True)
    delay_ms = milliseconds(policy.delay_s(retries))
    jitter_ms = round(delay_ms * policy.jitter)
    # A reject has the delay of the topology, and cannot carry a header.
    is_reject = delay_ms == layout.retry_delay_ms and not jitter_ms
    action = Action.REJECT if is_reject else Action.DELAY
    return Decision(action, delay_ms, jitter_ms=jitter_ms)
