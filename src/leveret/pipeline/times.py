"""Times as people give them to commands: read once, so that broker and Spark mean the same one."""

from datetime import UTC, datetime

from leveret.errors import ConfigError


def time_of(option: str, text: str | None) -> str | None:
    """A time of ISO 8601, UTC where it says nothing else, written out; ConfigError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        example = "such as 2026-03-01 or 2026-03-01T12:00"
        raise ConfigError(f"{option} is a time, {example} (UTC), not '{text}'") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).isoformat()
