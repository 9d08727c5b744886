"""The log of a node that follows says what it finds on its disk."""

import asyncio
import logging

import pytest

from leveret.journal.records import TERM_BLOCK
from leveret.runtime.cluster_logs import FollowingLog
from leveret.storage.file_names import log_name
from leveret.storage.raft_state import RaftState, write_raft_state
from leveret.testing.disk import FakeDisk

BLOCKS = 3


def opened(disk: FakeDisk, loop: asyncio.AbstractEventLoop, state: RaftState) -> FollowingLog:
    return FollowingLog(disk, loop, state, lambda: 1_700_000_000_000)


def test_a_node_that_has_lost_blocks_logs_which(caplog: pytest.LogCaptureFixture) -> None:
    """The leader sends them again, so nothing else shows that the disk has failed."""
    disk = FakeDisk()
    state = RaftState("c0" * 16, 2, "uid")
    write_raft_state(disk, state)

    async def follow() -> None:
        loop = asyncio.get_running_loop()
        following = opened(disk, loop, state)
        for index in range(1, BLOCKS + 1):
            written = asyncio.Event()
            block = following.make_block(index, 1, TERM_BLOCK, b"")
            following.log.write(None, 0, [(index, 1, TERM_BLOCK, block)], written.set)
            await written.wait()
        following.close()
        opened(disk, loop, state).close()
        assert not caplog.records
        content = bytearray(disk.contents()[log_name(1)])
        content[-20] ^= 1
        disk.put(log_name(1), bytes(content))
        state.commit = BLOCKS
        opened(disk, loop, state).close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(follow())
    (record,) = caplog.records
    assert "has lost blocks of its log" in record.getMessage()
    assert log_name(1) in record.getMessage()
