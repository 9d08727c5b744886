"""The memory alarm: publishers wait while the queues hold more than they may.

What counts is what the queues hold in memory, not the size of the process: it goes down as soon as
messages are consumed, and what waits in the log alone hardly counts. It is added up after every
`CHECK_BYTES` of received messages, and while the alarm is on at short intervals, so that it ends
without help.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from leveret.engine.broker import Broker

CHECK_BYTES: Final = 8 * 1024 * 1024
RECHECK_S: Final = 0.1
REASON: Final = "memory"


class MemoryWatch:
    """Sets and clears the memory alarm."""

    def __init__(
        self,
        broker: Broker,
        limit_bytes: int,
        loop: asyncio.AbstractEventLoop,
        on_change: Callable[[bool], None],
    ) -> None:
        self._broker = broker
        self._limit_bytes = limit_bytes
        self._loop = loop
        self._on_change = on_change
        self._received_bytes = 0  # since the last check
        self._is_on = False
        self._recheck: asyncio.TimerHandle | None = None

    def note_received(self, size: int) -> None:
        """Messages of this size came in."""
        self._received_bytes += size
        if self._received_bytes >= CHECK_BYTES:
            self._received_bytes = 0
            self.check()

    def check(self) -> None:
        is_over = held_bytes(self._broker) > self._limit_bytes
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
    """Memory that the messages of all queues take, about."""
    total = 0
    for queue in broker.slots.queues:
        if queue is not None:
            total += queue.memory_bytes()
    return total


def machine_bytes() -> int:
    """Memory that this process may use: the control group's limit, or the machine's memory."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _read_number(path)
        if limit is not None and limit < 1 << 60:
            return limit
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 * 1024**3


def _read_number(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
