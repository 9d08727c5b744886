"""Times in command options."""

import pytest

from leveret.errors import ConfigError
from leveret.pipeline.time_options import parse_time_option


def test_time_without_zone_is_utc() -> None:
    assert parse_time_option("--since", "2026-03-01") == "2026-03-01T00:00:00+00:00"
    assert (
        parse_time_option("--since", "20260301") == "2026-03-01T00:00:00+00:00"
    )  # no milliseconds
    assert parse_time_option("--since", "2026-03-01T12:00+02:00") == "2026-03-01T12:00:00+02:00"
    assert parse_time_option("--since", None) is None


def test_invalid_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="--until is a time, such as"):
        parse_time_option("--until", "today")
