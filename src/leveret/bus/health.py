"""What a bus answers when it is asked whether it works."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Health:
    """Whether the broker lists the consumer, and since when; else the reason why not."""

    is_consuming: bool
    since_ms: int | None = None
    reason: str = ""
