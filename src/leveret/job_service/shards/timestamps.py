"""Converts between milliseconds or microseconds since 1970 and the timestamps of PostgreSQL."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_US: Final = timedelta(microseconds=1)


def to_timestamp(ms: int) -> datetime:
    return _EPOCH + ms * _MS


def to_ms(at: datetime) -> int:
    return (at - _EPOCH) // _MS


def from_us(us: int) -> datetime:
    return _EPOCH + us * _US


def to_us(at: datetime) -> int:
    return (at - _EPOCH) // _US
