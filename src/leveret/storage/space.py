"""Room on the disk: an alarm while it is short, and a reserve for when there is none.

The reserve is a file that holds some room and nothing else. A block that finds the disk full takes
its place: acks can be written, a new log file begun and old ones removed, and so the room comes
back by consuming alone. When there is enough of it the reserve is made again.

The alarm is on while a block cannot be written, while the reserve is missing, and while less than
`free_min_bytes` are free. Free space is looked at when blocks are written, but not for each, and
while the alarm is on at intervals, so that it ends without help. Nothing polls otherwise.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from leveret.storage.disk import Disk
from leveret.storage.names import RESERVE

log = logging.getLogger(__name__)

RESERVE_BYTES: Final = 8 * 1024 * 1024
CHECK_S: Final = 0.1
RECHECK_S: Final = 0.5


class Reserve:
    """Room that only a full disk may take. The log's thread gives it up, the loop makes it."""

    def __init__(self, disk: Disk, size_bytes: int) -> None:
        self._disk = disk
        self.size_bytes = size_bytes  # 0 = there shall be none
        self.is_held = size_bytes == 0

    def find(self) -> None:
        """Whether an earlier run of the node has left it."""
        if self.is_held or RESERVE not in self._disk.names():
            return
        file = self._disk.open(RESERVE)
        self.is_held = file.size() == self.size_bytes
        file.close()

    def make(self) -> None:
        """Take the room, if that leaves as much again."""
        if self.is_held:
            return
        try:
            if self._disk.free_bytes() < 2 * self.size_bytes:
                return
            file = self._disk.create(RESERVE)
            try:
                file.allocate(self.size_bytes)
            finally:
                file.close()
        except OSError as fault:
            log.warning("no reserve on the disk: %s", fault)
            with contextlib.suppress(OSError):
                self._disk.remove(RESERVE)
        else:
            self.is_held = True

    def give_up(self) -> bool:
        """Make room; False where there is nothing to give."""
        if not self.is_held or self.size_bytes == 0:
            return False
        self.is_held = False
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(RESERVE)
        return True


class Space:
    """Sets and clears the disk alarm."""

    def __init__(
        self,
        disk: Disk,
        reserve: Reserve,
        loop: asyncio.AbstractEventLoop,
        free_min_bytes: int,
        on_change: Callable[[bool], None],
    ) -> None:
        self._disk = disk
        self._reserve = reserve
        self._loop = loop
        self._free_min_bytes = free_min_bytes
        self._on_change = on_change
        self.is_stuck = False  # a block cannot be written
        self.is_short = False  # the alarm
        self._next_check_s = 0.0  # loop time
        self._recheck: asyncio.TimerHandle | None = None

    def note_written(self) -> None:
        """A block is on disk."""
        was_stuck = self.is_stuck
        self.is_stuck = False
        if was_stuck or not self._reserve.is_held or self._loop.time() >= self._next_check_s:
            self.check()

    def check(self) -> None:
        """See how much room there is; take the reserve back if there is enough."""
        self._next_check_s = self._loop.time() + CHECK_S
        if not self.is_stuck:
            self._reserve.make()
        is_short = self.is_stuck or not self._reserve.is_held or self._is_low()
        if is_short and self._recheck is None:
            self._recheck = self._loop.call_later(RECHECK_S, self._on_recheck)
        if is_short != self.is_short:
            self.is_short = is_short
            self._on_change(is_short)

    def _is_low(self) -> bool:
        try:
            return self._disk.free_bytes() < self._free_min_bytes
        except OSError:
            return True

    def _on_recheck(self) -> None:
        self._recheck = None
        self.check()

    def stop(self) -> None:
        if self._recheck is not None:
            self._recheck.cancel()
