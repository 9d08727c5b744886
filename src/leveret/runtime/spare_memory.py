"""Give memory back to the operating system after the bursts of a node in a cluster.

The C library keeps freed memory between memory in use. A node that follows would keep that of its
last burst until the next full log file, and a node that has led would keep that of its broker for
as long as it follows. So `look` is called every `LOOK_S`, and gives memory back in three cases:

- The node has dropped a broker. The parts of a broker name each other, so they are collected first.
- Much has come from other nodes, and now little comes.
- Very much has come, and more is coming.
"""

import gc
from collections.abc import Callable
from typing import Final

from leveret.heap import give_back_memory

LOOK_S: Final = 2.0
BURST_BYTES: Final = 16 * 1024 * 1024  # received since memory was given back
QUIET_BYTES: Final = 1024 * 1024  # received since the last look; with more, the burst goes on
LONG_BURST_BYTES: Final = 512 * 1024 * 1024  # with so much, no end of the burst is waited for


class SpareMemory:
    """Decides when a node gives memory back."""

    def __init__(
        self,
        received_bytes: Callable[[], int],
        collect: Callable[[], object] = gc.collect,
        give_back: Callable[[], None] = give_back_memory,
    ) -> None:
        """`received_bytes` returns what has come on the connections with other nodes."""
        self._received_bytes = received_bytes
        self._collect = collect
        self._give_back = give_back
        self._seen_bytes = 0  # at the last look
        self._burst_bytes = 0  # received since memory was given back
        self._has_dropped = False

    def note_dropped(self) -> None:
        """Note that this node has dropped a broker."""
        self._has_dropped = True

    def look(self) -> None:
        """Give memory back if it is worth the time."""
        received = self._received_bytes()
        # A new connection begins to count at zero.
        new_bytes = received - self._seen_bytes if received >= self._seen_bytes else received
        self._seen_bytes = received
        self._burst_bytes += new_bytes
        if self._has_dropped:
            self._collect()
        elif not self._is_over(new_bytes):
            return
        self._has_dropped = False
        self._burst_bytes = 0
        self._give_back()

    def _is_over(self, new_bytes: int) -> bool:
        """Return True after the end of a burst, and after a part of a long one."""
        if new_bytes < QUIET_BYTES:
            return self._burst_bytes >= BURST_BYTES
        return self._burst_bytes >= LONG_BURST_BYTES
