"""The memory of the consumers of each user, which is limited.

A channel may have ten thousand consumers, and a connection thousands of channels. The arguments of
a consumer have up to 16 KiB. So a user who may read one queue could fill the memory by a single
connection. Sessions of the broker itself have no user and no limit.
"""

from typing import Final

from mypy_extensions import i64

from leveret.errors import PreconditionFailedError

CONSUMER_BYTES: Final = 400  # of a consumer, beside its tag and its arguments
USER_BYTES_MAX: Final = 256 * 1024 * 1024  # of the consumers of one user, on all connections


class ConsumerRoom:
    """Counts the bytes of the consumers of each user."""

    def __init__(self) -> None:
        self.user_bytes_max: i64 = USER_BYTES_MAX
        self._bytes: dict[str, int] = {}  # by user

    def require(self, user: str) -> None:
        """Raise PreconditionFailedError if a user may have no further consumer."""
        taken: i64 = self._bytes.get(user, 0)
        if user and taken >= self.user_bytes_max:
            raise PreconditionFailedError(
                f"cannot consume: the consumers of user '{user}' take {taken} bytes; the limit is "
                f"{self.user_bytes_max}"
            )

    def add(self, user: str, tag: str, arguments: bytes) -> None:
        """Count a consumer."""
        self._add(user, CONSUMER_BYTES + len(tag) + len(arguments))

    def remove(self, user: str, tag: str, arguments: bytes) -> None:
        """Uncount a consumer that has ended."""
        self._add(user, -(CONSUMER_BYTES + len(tag) + len(arguments)))

    def _add(self, user: str, size: int) -> None:
        taken = self._bytes.get(user, 0) + size
        if taken > 0:
            self._bytes[user] = taken
        else:
            self._bytes.pop(user, None)
