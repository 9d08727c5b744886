"""Health of one server of the store: whether it answers, why it does not, and its clock.

The log gets a line when a server stops answering or refuses changes, for each new cause, and when
that is over.
"""

import logging
import time
from typing import Final, Protocol

from leveret.errors import JobsUnavailableError
from leveret.job_service.report import ServerReport
from leveret.job_service.shards.sql.loader import CLOCK_SKEW_MS_MAX

SLOWED_MS_MIN: Final = 1_000  # from which a clock that is slowed down is told
TRAVEL_MS_MAX: Final = 5_000  # of a question and its answer, unless the clock was set meanwhile

# Errors of calls say one of these after the name of the server.
NO_ANSWER: Final = "does not answer"
REFUSES_CHANGES: Final = "refuses changes"

log = logging.getLogger(__name__)


class Time(Protocol):
    """The clock of the node."""

    def now_ms(self) -> int: ...


class ServerHealth:
    """The breaker of a server, and the skew of its clock."""

    def __init__(self, name: str, address: str, *, is_skew_measured: bool) -> None:
        self.name: Final = f"{name} ({address})"
        self.public_name: Final = name
        self._is_skew_measured = is_skew_measured
        self.is_up = False
        self.was_up = False  # it has answered since the start of the node
        self.cause = ""  # why it is down; empty while it is up, or has not been asked yet
        self.failures = 0  # how often it went down, or could not be reached at first
        self.write_refusal = ""  # why it takes no changes: it is full or read-only
        self.skew_ms: int | None = None  # how far this node's clock is ahead; None: not measured
        self._slowed_ms = 0  # how far the clock of the node is ahead of that of its machine
        self._measured_ms = 0.0  # the time of the server at the last measurement
        self._measured_s = 0.0  # when it was measured, by a monotonic clock

    def require(self) -> None:
        """Raise unless the server is known to answer."""
        if not self.is_up:
            raise self.error(NO_ANSWER, self.cause)

    def error(self, what: str, cause: str = "") -> JobsUnavailableError:
        """Return the error of a call. Its client is told neither the address nor the cause."""
        text = f"{self.name} {what}" + (f": {cause}" if cause else "")
        return JobsUnavailableError(text, f"{self.public_name} {what}")

    def on_up(self) -> None:
        if not self.is_up:
            log.info("%s is up", self.name)
        self.is_up = self.was_up = True
        self.cause = ""

    def on_down(self, cause: str) -> None:
        """Open the breaker."""
        if self.is_up or not self.cause:
            self.failures += 1
        if self.is_up or cause != self.cause:
            text = "%s is down: %s: start it, or correct its address; it is tried again by itself"
            log.warning(text, self.name, cause.rstrip("."))
        self.is_up = False
        self.cause = cause

    def note_write_refusal(self, cause: str) -> None:
        """Note why the server takes no changes; an empty cause: it takes them."""
        if cause and cause != self.write_refusal:
            log.error("%s refuses changes: %s", self.name, cause)
        elif self.write_refusal and not cause:
            log.info("%s takes changes again", self.name)
        self.write_refusal = cause

    def require_changes(self) -> None:
        """Raise if the server is known to refuse changes."""
        if self.write_refusal:
            raise self.error(REFUSES_CHANGES, self.write_refusal)

    def note_time(self, asked_ms: int, answered_ms: int, server_ms: int) -> None:
        """Calculate the skew from one request for the time of the server."""
        if not self._is_skew_measured:
            return
        before = self.skew_refusal()
        travelled_ms = min(max(answered_ms - asked_ms, 0), TRAVEL_MS_MAX) / 2
        self._measured_ms, self._measured_s = server_ms + travelled_ms, time.monotonic()
        self.skew_ms = (asked_ms + answered_ms) // 2 - server_ms
        self._slowed_ms = answered_ms - time.time_ns() // 1_000_000
        refusal = self.skew_refusal()
        if refusal and not before:
            log.error("%s", refusal)
        elif before and not refusal:
            log.info("the clock of this node agrees with %s again", self.name)

    def server_time_ms(self, now_ms: int) -> int:
        """Return the time of the server, or the given time of the node if it is not measured.

        The clock of the node may be set at any moment, which does not matter here.
        """
        if self.skew_ms is None:
            return now_ms
        return int(self._measured_ms + (time.monotonic() - self._measured_s) * 1000)

    def skew_refusal(self) -> str:
        """Return why this node must not lease jobs of the server; empty if it may."""
        if self.skew_ms is None or abs(self.skew_ms) <= CLOCK_SKEW_MS_MAX:
            return ""
        side = "ahead of" if self.skew_ms > 0 else "behind"
        text = (
            f"the clock of this node is {abs(self.skew_ms) / 1000:.0f} s {side} {self.name};"
            f" at most {CLOCK_SKEW_MS_MAX // 1000} s are allowed"
        )
        if self._slowed_ms >= SLOWED_MS_MIN:
            text += (
                " (the time of its machine was set back, which the node follows at half speed;"
                " a restart of the node takes the time of the machine)"
            )
        return text

    def require_clock(self) -> None:
        """Raise if the clocks of node and server differ by too much to make ids and leases."""
        refusal = self.skew_refusal()
        if refusal:
            raise JobsUnavailableError(refusal, refusal.replace(self.name, self.public_name))


def server_report(health: ServerHealth, *, is_shard: bool) -> ServerReport:
    return ServerReport(
        name=health.name,
        public_name=health.public_name,
        is_shard=is_shard,
        is_up=health.is_up,
        was_up=health.was_up,
        cause=health.cause,
        failures=health.failures,
        write_refusal=health.write_refusal,
        skew_ms=health.skew_ms if health.is_up else None,  # the last one may be hours old
        skew_refusal=health.skew_refusal() if is_shard else "",
    )
