"""Disk space: an alarm while it is short, and a reserve for a full disk.

The reserve is a file that only occupies space. When the disk is full, the log removes it to get
room for the next block. Then acks can be written, a new log file begun and old ones removed, so
that consuming alone frees space. When there is enough space, the reserve is made again.

The alarm is on while a block cannot be written, while the reserve is missing, and while less than
`free_min_bytes` are free. Free space is checked when blocks are written, at most every `CHECK_S`.
It is also checked every `RECHECK_S` while the alarm is on, so that the alarm ends by itself, and
every `IDLE_CHECK_S` otherwise, because other programs fill disks too. The same check notices that
the data directory was removed or replaced (`on_missing`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from leveret.storage.disk import Disk
from leveret.storage.file_names import RESERVE

log = logging.getLogger(__name__)

RESERVE_BYTES: Final = 8 * 1024 * 1024
CHECK_S: Final = 0.1
RECHECK_S: Final = 0.5
IDLE_CHECK_S: Final = 10.0


class DiskReserve:
    """Disk space kept for a full disk. The log's thread gives it up, the event loop makes it."""

    def __init__(self, disk: Disk, size_bytes: int) -> None:
        self._disk = disk
        self.size_bytes = size_bytes  # 0 = no reserve is wanted
        self.is_held = size_bytes == 0

    def find(self) -> None:
        """Check whether an earlier run of the node has left the reserve."""
        if self.is_held or RESERVE not in self._disk.names():
            return
        file = self._disk.open(RESERVE)
        self.is_held = file.size() == self.size_bytes
        file.close()

    def make(self) -> None:
        """Allocate the reserve, if that leaves as much space again."""
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
            text = (
                "the file that is kept in reserve for a full disk could not be made: %s: free space"
                " on the disk of the data directory; it is tried again"
            )
            log.warning(text, fault)
            with contextlib.suppress(OSError):
                self._disk.remove(RESERVE)
        else:
            self.is_held = True

    def give_up(self) -> bool:
        """Remove the reserve to make room; return False if there is none."""
        if not self.is_held or self.size_bytes == 0:
            return False
        self.is_held = False
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(RESERVE)
        return True


class DiskAlarm:
    """Sets and clears the disk alarm."""

    def __init__(
        self,
        disk: Disk,
        reserve: DiskReserve,
        loop: asyncio.AbstractEventLoop,
        free_min_bytes: int,
        on_change: Callable[[bool], None],
    ) -> None:
        self._disk = disk
        self._reserve = reserve
        self._loop = loop
        self._free_min_bytes = free_min_bytes
        self._on_change = on_change
        self.on_missing: Callable[[], None] = _ignore  # called if the data directory is gone
        self._is_missing = False
        self.is_stuck = False  # a block cannot be written
        self.is_on = False  # the alarm is on
        self._next_check_s = 0.0  # loop time
        self._recheck: asyncio.TimerHandle | None = None
        self._has_stopped = False

    def note_written(self) -> None:
        """Note that a block is on disk."""
        was_stuck = self.is_stuck
        self.is_stuck = False
        if was_stuck or not self._reserve.is_held or self._loop.time() >= self._next_check_s:
            self.check()

    def check(self) -> None:
        """Check the free space; make the reserve again if there is enough."""
        self._next_check_s = self._loop.time() + CHECK_S
        if not self._is_missing and not self._disk.is_in_place():
            self._is_missing = True
            self.is_stuck = True
            self.on_missing()
        if not self.is_stuck:
            self._reserve.make()
        was_short = self.is_on
        self.is_on = self.is_stuck or not self._reserve.is_held or self._is_low()
        if self._recheck is None or (self.is_on and not was_short):
            self._check_later()
        if self.is_on != was_short:
            self._on_change(self.is_on)

    def _is_low(self) -> bool:
        try:
            return self._disk.free_bytes() < self._free_min_bytes
        except OSError:  # free space that cannot be read is not relied on
            return True

    def _check_later(self) -> None:
        if self._recheck is not None:
            self._recheck.cancel()
        if not self._has_stopped:
            delay_s = RECHECK_S if self.is_on else IDLE_CHECK_S
            self._recheck = self._loop.call_later(delay_s, self._on_recheck)

    def _on_recheck(self) -> None:
        self._recheck = None
        self.check()

    def stop(self) -> None:
        self._has_stopped = True
        if self._recheck is not None:
            self._recheck.cancel()


def _ignore() -> None:
    """Do nothing: the default for `on_missing`."""
