"""The settings of a queue of the library, and the settings of its engine queue."""

from typing import Final, NamedTuple

from leveret.engine.arguments.queue_arguments import QueueSettings
from leveret.errors import PreconditionFailedError

PRIORITY_MIN: Final = -(1 << 31)
PRIORITY_MAX: Final = (1 << 31) - 1
# The priorities of the engine start at 0: this is added by a push and subtracted by a pop.
PRIORITY_ZERO: Final = -PRIORITY_MIN

COUNT_MAX: Final = (1 << 31) - 1
TIME_MS_MAX: Final = 315_360_000_000  # ten years: the limit of the engine


class Rules(NamedTuple):
    """The settings of a queue; None means no limit."""

    visibility_timeout_s: float
    retries_max: int | None
    dead_letter: str | None
    length_max: int | None

    def check(self) -> None:
        """Raise PreconditionFailedError if a number is out of range."""
        require_ms("visibility_timeout_s", self.visibility_timeout_s, least_ms=1)
        if self.retries_max is not None:
            require_within("retries_max", self.retries_max, 0, COUNT_MAX)
        if self.length_max is not None:
            require_within("length_max", self.length_max, 0, COUNT_MAX)

    def settings(self) -> QueueSettings:
        """Return the settings of the engine queue, in an object that no other queue shares."""
        settings = QueueSettings("classic")
        settings.priority_max = PRIORITY_MAX + PRIORITY_ZERO
        settings.delivery_limit = -1 if self.retries_max is None else self.retries_max
        settings.retry_type = "all"  # every returned message is delayed; see `Queue._give_back`
        return settings


def require_within(name: str, value: int, least: int, most: int) -> None:
    """Raise PreconditionFailedError unless a number is in its range."""
    if not least <= value <= most:
        raise PreconditionFailedError(f"{name} must be from {least} to {most}, not {value}")


def require_ms(name: str, seconds: float, *, least_ms: int) -> int:
    """Return a time in milliseconds. Raise PreconditionFailedError if it is out of range."""
    if not least_ms / 1000 <= seconds <= TIME_MS_MAX / 1000:
        text = f"{name} must be from {least_ms / 1000:g} to {TIME_MS_MAX // 1000}, not {seconds}"
        raise PreconditionFailedError(text)
    return round(seconds * 1000)
