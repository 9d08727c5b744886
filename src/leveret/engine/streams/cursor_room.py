"""The room for the cursors of a vhost, which all its streams share.

Anybody who may read a stream makes cursors, by naming them. They stay when their consumers end.
They are in memory, and in the state with which each log file of a cluster's leader begins.
"""

from typing import Final

from mypy_extensions import i64

from leveret.errors import PreconditionFailedError

CURSORS_MAX: Final = 100_000  # of one vhost


class CursorRoom:
    """Counts the cursors of a vhost."""

    def __init__(self, vhost: str) -> None:
        self._vhost = vhost
        self.cursors_max: i64 = CURSORS_MAX
        self.cursors: i64 = 0

    def require(self) -> None:
        """Raise PreconditionFailedError if there may be no further cursor."""
        if self.cursors >= self.cursors_max:
            raise PreconditionFailedError(
                f"cannot make a stream cursor: the streams of vhost '{self._vhost}' have "
                f"{self.cursors} cursors; the limit is {self.cursors_max}"
            )
