"""What became of a delivery, and what the bus does about it: two tables and one decision.

`Handled` is what a handler says, `decide` makes of it the one thing that is done: ack, reject (the
broker sends it to the retry queue), wait in a delay step, requeue, or dead letter. It is pure: the
bus and the double for tests both ask it.
"""

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from leveret.bus.policy import RetryPolicy
from leveret.bus.topology import Layout, milliseconds
from leveret.errors import DecodeError, PermanentError

MAX_RETRIES_EXCEEDED: Final = "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"


class ConsumerStatus(StrEnum):
    """What a handler wants to be done with a delivery."""

    ACK = "ACK"  # it is done
    DROP = "DROP"  # it failed: try again later
    REQUEUE = "REQUEUE"  # it is too early: wait a little, then give it back
    DEAD = "DEAD"  # it can never be done: to the dead letters at once


@dataclass(frozen=True)
class Handled:
    """What became of a delivery."""

    status: ConsumerStatus
    code: int | None = None  # an HTTP status, where there is one
    error: str | None = None  # what was raised, where something was

    @property
    def is_done(self) -> bool:
        return self.status is ConsumerStatus.ACK


DONE: Final = Handled(ConsumerStatus.ACK, HTTPStatus.OK)
TOO_EARLY: Final = Handled(ConsumerStatus.REQUEUE, HTTPStatus.TOO_EARLY)

Result = None | int | ConsumerStatus | Handled

_TRANSIENT: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.CONFLICT)


def handled(result: Result, layout: Layout) -> Handled:
    """What a handler's answer means: None is success, a number is an HTTP status.

    TypeError for all else: True, or a count of rows, is no status that somebody meant.
    """
    if result is None:
        return DONE
    if isinstance(result, Handled):
        return result
    if isinstance(result, ConsumerStatus):
        return Handled(result)
    _require_status(result)
    return Handled(status_of(result, layout), int(result))


def _require_status(answer: object) -> None:
    if isinstance(answer, bool) or not isinstance(answer, int) or not 100 <= answer <= 999:
        text = "None, an HTTP status, a ConsumerStatus or a Handled"
        raise TypeError(f"a handler answers by {text}, not by {answer!r}")


def status_of(code: int, layout: Layout) -> ConsumerStatus:
    """The table of HTTP statuses.

    A 4xx that is not for a moment is a fault of the message: where the layout knows permanent
    faults it goes to the dead letters, else it is tried again like everything that fails.
    """
    if 200 <= code < 300:
        return ConsumerStatus.ACK
    if code == HTTPStatus.TOO_EARLY:
        return ConsumerStatus.REQUEUE
    is_permanent = 400 <= code < 500 and code not in _TRANSIENT and layout.permanent_to_dlq
    return ConsumerStatus.DEAD if is_permanent else ConsumerStatus.DROP


def failed(fault: BaseException, layout: Layout) -> Handled:
    """What an exception of a handler means."""
    is_permanent = isinstance(fault, PermanentError | DecodeError) and layout.permanent_to_dlq
    status = ConsumerStatus.DEAD if is_permanent else ConsumerStatus.DROP
    return Handled(status, None, f"{type(fault).__name__}: {fault}")


class Act(StrEnum):
    """What is done with a delivery."""

    ACK = "ack"
    REJECT = "reject"  # the broker puts it into the retry queue
    DELAY = "delay"  # it is published to the queue of a delay step, then acked
    REQUEUE = "requeue"
    DEAD = "dead"  # it is published to the dead letters, then acked


@dataclass(frozen=True)
class Decision:
    """What is done with a delivery, and after how long it comes back."""

    act: Act
    delay_ms: int = 0
    is_exhausted: bool = False  # dead because it was tried too often


def decide(outcome: Handled, retries: int, layout: Layout, policy: RetryPolicy) -> Decision:
    """What is done with a delivery that was tried again `retries` times before."""
    if outcome.status is ConsumerStatus.ACK:
        return Decision(Act.ACK)
    if outcome.status is ConsumerStatus.REQUEUE:
        return Decision(Act.REQUEUE)
    if outcome.status is ConsumerStatus.DEAD:
        return Decision(Act.DEAD)
    if retries >= policy.retries_max:
        return Decision(Act.DEAD, is_exhausted=True)
    delay_ms = milliseconds(policy.delay_s(retries))
    is_first = delay_ms == layout.retry_delay_ms
    return Decision(Act.REJECT if is_first else Act.DELAY, delay_ms)
