"""What a queue of the library may be asked to be, and what that means to the engine's machine."""

from typing import Final, NamedTuple

from leveret.engine.arguments.queue_arguments import QueueSettings
from leveret.errors import PreconditionFailedError

PRIORITY_MIN: Final = -(1 << 31)
PRIORITY_MAX: Final = (1 << 31) - 1
# The machine's priorities start at 0: this is added on the way in and taken off on the way out.
PRIORITY_ZERO: Final = -PRIORITY_MIN

COUNT_MAX: Final = (1 << 31) - 1
TIME_MS_MAX: Final = 315_360_000_000  # ten years: what the engine takes for a time


class Rules(NamedTuple):
    """The settings of a queue; None means no limit."""

    visibility_timeout_ms: int
    retries_max: int | None
    dead_letter: str | None
    length_max: int | None

    def check(self) -> None:
        """Raise PreconditionFailedError where a number is out of range."""
        require_within("visibility_timeout_ms", self.visibility_timeout_ms, 1, TIME_MS_MAX)
        if self.retries_max is not None:
            require_within("retries_max", self.retries_max, 0, COUNT_MAX)
        if self.length_max is not None:
            require_within("length_max", self.length_max, 0, COUNT_MAX)

    def settings(self) -> QueueSettings:
        """The same for the machine, in an object that no other queue has."""
        settings = QueueSettings("classic")
        settings.priority_max = PRIORITY_MAX + PRIORITY_ZERO
        settings.delivery_limit = -1 if self.retries_max is None else self.retries_max
        settings.retry_type = "all"  # every return has its delay; see `Queue._give_back`
        return settings


def require_within(name: str, value: int, least: int, most: int) -> None:
    """Raise PreconditionFailedError unless a number is in its range."""
    if not least <= value <= most:
        raise PreconditionFailedError(f"{name} must be from {least} to {most}, not {value}")
