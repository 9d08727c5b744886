"""Between milliseconds since 1970, which the service counts in, and PostgreSQL's moments."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def moment(ms: int) -> datetime:
    return _EPOCH + ms * _MS


def ms_of(at: datetime) -> int:
    return (at - _EPOCH) // _MS
