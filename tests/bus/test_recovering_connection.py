"""Two calls that stop a connection at the same time: a signal during the start of a bus."""

import asyncio
from random import Random
from typing import Any, cast

from leveret.bus.connections.connection import BrokerConnection
from leveret.bus.connections.recovering_connection import BrokerSession, RecoveringConnection
from leveret.bus.retry_policy import Backoff


class SlowConnection:
    """A connection whose closing takes until the test says so."""

    def __init__(self) -> None:
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.close_begun = asyncio.Event()
        self.may_close = asyncio.Event()
        self.is_closed = False

    async def close(self) -> None:
        self.close_begun.set()
        await self.may_close.wait()
        self.is_closed = True


async def stop_twice() -> SlowConnection:
    slow = SlowConnection()
    session = BrokerSession(cast(BrokerConnection, slow), cast(Any, slow), 0)

    async def open_session() -> BrokerSession:
        return session

    connection = RecoveringConnection("service", open_session, Backoff(Random(1), 0.1, 1.0), 60.0)
    connection.start()
    await connection.wait_for_session(60.0)
    async with asyncio.TaskGroup() as stops:
        stops.create_task(connection.stop())
        await slow.close_begun.wait()
        stops.create_task(connection.stop())
        await asyncio.sleep(0)  # it begins
        slow.may_close.set()
    return slow


def test_a_second_stop_waits_until_the_first_has_closed_the_connection() -> None:
    assert asyncio.run(stop_twice()).is_closed
