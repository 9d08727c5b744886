"""Times of commands."""

import pytest

from leveret.errors import ConfigError
from leveret.pipeline.times import time_of


def test_a_time_is_utc_where_it_says_nothing_else() -> None:
    assert time_of("--since", "2026-03-01") == "2026-03-01T00:00:00+00:00"
    assert time_of("--since", "20260301") == "2026-03-01T00:00:00+00:00"  # no milliseconds
    assert time_of("--since", "2026-03-01T12:00+02:00") == "2026-03-01T12:00:00+02:00"
    assert time_of("--since", None) is None


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="--until is a time, such as"):
        time_of("--until", "today")
