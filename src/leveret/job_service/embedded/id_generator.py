"""Makes the ids of this node's jobs and leases: Snowflakes that rise across restarts too.

The register keeps a time that no id exceeds (`floor`). A clock that was set back while the node was
down therefore makes no id twice. The floor is written ahead of time, so that it is written seldom.

Until the floor is on disk, a kill could take it back, and the next start would make the same ids.
So nobody may see an id before `is_safe` says so.
"""

from typing import Final
from zlib import crc32

from leveret.engine.vhosts.register import Register
from leveret.job_service.snowflake import NODE_MAX, Snowflakes, first_of

KIND: Final = "job-ids"
FLOOR: Final = "floor"
AHEAD_MS: Final = 60_000


class IdGenerator:
    """Makes ids, inside a turn."""

    def __init__(self, register: Register, node_name: str) -> None:
        self._register = register
        self._reserved_ms = int(register.get(KIND, FLOOR) or 0)
        self._safe_ms = self._reserved_ms  # the floor on disk
        self._snowflakes = Snowflakes(crc32(node_name.encode()) & NODE_MAX, self._reserved_ms)

    @property
    def floor_ms(self) -> int:
        """The time that no id so far exceeds."""
        return self._reserved_ms

    def is_safe(self, id: int) -> bool:
        """Return False if a kill could take back the floor above this id."""
        return id < first_of(self._safe_ms + 1)

    def note_on_disk(self, floor_ms: int) -> None:
        """Note that a floor is on disk."""
        self._safe_ms = max(self._safe_ms, floor_ms)

    def next(self, now_ms: int) -> int:
        """Return a new id, above all earlier ones."""
        return self.next_many(1, now_ms)[0]

    def next_many(self, count: int, now_ms: int) -> list[int]:
        """Return so many new ids, each above all earlier ones."""
        ids = self._snowflakes.next_many(count, now_ms)
        if self._snowflakes.last_ms >= self._reserved_ms:
            self._reserved_ms = self._snowflakes.last_ms + AHEAD_MS
            self._register.put(KIND, FLOOR, str(self._reserved_ms))
        return ids
