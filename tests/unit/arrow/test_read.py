"""A read waits longer for its first rows than for the next ones: the worker may have to start."""

import asyncio
import socket
from unittest.mock import patch

import pytest

from leveret.arrow import bulk_reads
from leveret.arrow.bulk_reads import Read, ReadError
from leveret.arrow.worker_protocol import STATUS, frame


def test_first_rows_may_take_longer_than_the_next_bytes() -> None:
    async def scenario(worker: socket.socket, read: Read) -> None:
        async with asyncio.TaskGroup() as tasks:
            beginning = tasks.create_task(read.begin())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not beginning.done()
            worker.sendall(frame(STATUS))
        with pytest.raises(ReadError, match="the worker sent nothing for 0 s"):
            await read.piece()

    async def run() -> None:
        worker, mine = socket.socketpair()
        mine.setblocking(False)
        with worker, mine, patch.object(bulk_reads, "ENCODE_S", 0.0):
            await scenario(worker, Read(mine))

    asyncio.run(run())
