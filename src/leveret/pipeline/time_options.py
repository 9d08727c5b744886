"""Parse times in command options once, so that broker and Spark use the same time."""

from datetime import UTC, datetime

from leveret.errors import ConfigError


def parse_time_option(option: str, text: str | None) -> str | None:
    """Return an ISO 8601 time with its zone (UTC by default); raise ConfigError if invalid."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        example = "such as 2026-03-01 or 2026-03-01T12:00"
        raise ConfigError(f"{option} is a time, {example} (UTC), not '{text}'") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).isoformat()
