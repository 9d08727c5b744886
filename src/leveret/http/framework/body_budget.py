"""The memory that the request bodies of all clients together may take.

Handlers read a body only after the login, and each body has a limit of its own. The budget limits
their sum: many clients with large bodies at once get 503 and try again, instead of taking all
memory. One holder, a user or the subject of a token, may have `HOLDER_SHARE` of it, so that slow
bodies of one client leave room for all others. Administrators have no such limit.
"""

from typing import Final

BODIES_BYTES_MAX: Final = 256 * 1024 * 1024  # room for about five of the largest batches of jobs
HOLDER_SHARE: Final = 0.5
NO_HOLDER: Final = ""  # a body that counts for nobody


class BodyBudget:
    """Counts the bytes of bodies that are in memory."""

    def __init__(self) -> None:
        self._left = BODIES_BYTES_MAX
        self._held: dict[str, int] = {}  # bytes of each holder

    def take(self, size: int, holder: str) -> bool:
        """Count bytes that will be kept. Return False if there is no room for them."""
        if size > self._left:
            return False
        if holder != NO_HOLDER:
            held = self._held.get(holder, 0) + size
            if held > BODIES_BYTES_MAX * HOLDER_SHARE:
                return False
            self._held[holder] = held
        self._left -= size
        return True

    def give_back(self, size: int, holder: str) -> None:
        self._left += size
        if holder in self._held:
            self._held[holder] -= size
            if self._held[holder] == 0:
                del self._held[holder]

    def taken_bytes(self) -> int:
        """Return the bytes of bodies that are in memory, or will be when they have arrived."""
        return BODIES_BYTES_MAX - self._left
