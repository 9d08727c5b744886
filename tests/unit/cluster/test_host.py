"""The host of a member: what it tells the member about the disk."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from leveret.cluster.host import SLOW_DISK_BYTES_PER_S, TICK_S, RaftHost
from leveret.cluster.raft.block import Block
from leveret.cluster.raft.stored import HardState
from tests.unit.cluster.trio import Trio


class HangingLog:
    """A log whose syncs never end. It has no other parts."""

    def block_fault(self, block: Block) -> str:
        return ""

    def write(
        self, hard: HardState | None, cut_from: int, blocks: list[Block], done: Callable[[], None]
    ) -> None:
        pass


def ticks_of_a_sync(size: int, after_s: float) -> int:
    """Return for how many ticks a sync of one block seems to hang, some time after its start."""
    trio = Trio()
    trio.deaf = {2}
    trio.leader.append(bytes(size))
    trio.run()
    (message,) = [message for message in trio.sent if message.target == 2 and message.blocks][-1:]
    times = [0.0]
    hanging: Any = HangingLog()
    host = RaftHost(trio.raft(2), hanging, Mock(), lambda: times[0], Mock())
    host.on_messages([message])
    times[0] = after_s
    return host.sync_ticks()


def test_a_sync_that_hangs_is_counted_in_ticks() -> None:
    assert ticks_of_a_sync(100, TICK_S / 2) == 0
    assert ticks_of_a_sync(100, 20.5 * TICK_S) == 20


def test_the_time_that_a_slow_disk_needs_for_a_large_block_does_not_count() -> None:
    slow_s = 2.0
    assert ticks_of_a_sync(2 * SLOW_DISK_BYTES_PER_S, slow_s) == 0
    assert ticks_of_a_sync(2 * SLOW_DISK_BYTES_PER_S, slow_s + 10.5 * TICK_S) == 10
