"""Converts between milliseconds since 1970 and the timestamps of PostgreSQL."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def to_timestamp(ms: int) -> datetime:
    return _EPOCH + ms * _MS


def to_ms(at: datetime) -> int:
    return (at - _EPOCH) // _MS
