"""The memory alarm: publishers wait while messages and buffers hold more memory than the limit.

The alarm looks at the memory of messages in queues, of incomplete messages and HTTP bodies, and of
output that AMQP and HTTP clients have not read. It does not look at the size of the process,
because that hardly falls when messages are consumed. Messages that are only in the log hardly
count.

The figure is computed after every `CHECK_BYTES` that AMQP publishers send. HTTP, jobs, shovels and
tasks publish too, so it is also computed while there are turns (`probe`), with pauses that keep
its cost below 1 / `COST_SHARE` of the time. While the alarm is on it is computed every `RECHECK_S`,
so that the alarm ends by itself. The alarm ends somewhat below the limit, so that publishers are
not blocked and unblocked all the time.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from leveret.engine.broker import Broker

CHECK_BYTES: Final = 8 * 1024 * 1024
COST_SHARE: Final = 50
END_SHARE: Final = 0.95  # of the limit, at which the alarm ends
UNFINISHED_SHARE: Final = 0.25  # of the limit, for incomplete messages of all connections
RECHECK_S: Final = 0.1
MEMORY_REASON: Final = "memory"
UNLIMITED: Final = 1 << 60  # control groups of version 1 report "no limit" as a number above this
DEFAULT_BYTES: Final = 4 * 1024**3  # if the system reports no memory size


class MemoryAlarm:
    """Checks the memory in use, and reports the begin and end of an alarm."""

    def __init__(
        self,
        held_bytes: Callable[[], int],
        limit_bytes: int,
        loop: asyncio.AbstractEventLoop,
        on_change: Callable[[bool], None],
    ) -> None:
        self._held_bytes = held_bytes
        self._limit_bytes = limit_bytes
        self._loop = loop
        self._on_change = on_change
        self._received_bytes = 0  # since the last check
        self._is_on = False
        self._next_probe_s = 0.0
        self._recheck: asyncio.TimerHandle | None = None

    def note_received(self, size: int) -> None:
        """Count received message bytes, and check the memory from time to time."""
        self._received_bytes += size
        if self._received_bytes >= CHECK_BYTES:
            self._received_bytes = 0
            self.check()

    def probe(self) -> None:
        """Check the memory, unless the last check was expensive and not long ago."""
        began_s = time.perf_counter()
        if began_s >= self._next_probe_s:
            self.check()
            ended_s = time.perf_counter()
            self._next_probe_s = ended_s + (ended_s - began_s) * COST_SHARE

    def check(self) -> None:
        limit_bytes = self._limit_bytes * END_SHARE if self._is_on else self._limit_bytes
        is_over = self._held_bytes() > limit_bytes
        if is_over and self._recheck is None:
            self._recheck = self._loop.call_later(RECHECK_S, self._on_recheck)
        if is_over != self._is_on:
            self._is_on = is_over
            self._on_change(is_over)

    def _on_recheck(self) -> None:
        self._recheck = None
        self.check()

    def stop(self) -> None:
        if self._recheck is not None:
            self._recheck.cancel()


def held_bytes(broker: Broker) -> int:
    """Return the approximate memory of the messages in all queues."""
    total = 0
    for queue in broker.slots.queues:
        if queue is not None:
            total += queue.memory_bytes()
    return total


def machine_bytes(root: Path = Path("/")) -> int:
    """Return the memory limit of this process: of its control groups, or of the machine."""
    limits = [_meminfo_bytes(root)]
    for folder in _control_groups(root):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            limit = _read_number(folder / name)
            if limit is not None and 0 < limit < UNLIMITED:
                limits.append(limit)
    return min(limits)


def _control_groups(root: Path) -> list[Path]:
    """Return the folders of the control groups of this process, and of their parents.

    In a container with its own namespace they are at the top; otherwise the kernel names them.
    """
    mounts = {"": root / "sys/fs/cgroup", "memory": root / "sys/fs/cgroup/memory"}
    found = list(mounts.values())
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount = mounts.get("memory" if "memory" in controllers.split(",") else controllers)
        if mount is None:
            continue
        folder = mount / path.lstrip("/")
        found += [above for above in (folder, *folder.parents) if above.is_relative_to(mount)]
    return found


def _meminfo_bytes(root: Path) -> int:
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return DEFAULT_BYTES


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
