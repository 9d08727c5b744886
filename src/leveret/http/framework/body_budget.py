"""The memory that the request bodies of all clients together may take.

Handlers read a body only after the login, and each body has a limit of its own. The budget limits
their sum: many clients with large bodies at once get 503 and try again, instead of taking all
memory.
"""

from typing import Final

BODIES_BYTES_MAX: Final = 256 * 1024 * 1024  # room for about five of the largest batches of jobs


class BodyBudget:
    """Counts the bytes of bodies that are in memory."""

    def __init__(self) -> None:
        self._left = BODIES_BYTES_MAX

    def take(self, size: int) -> bool:
        """Count bytes that will be kept. Return False if there is no room for them."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        self._left += size

    def taken_bytes(self) -> int:
        """Return the bytes of bodies that are in memory, or will be when they have arrived."""
        return BODIES_BYTES_MAX - self._left
