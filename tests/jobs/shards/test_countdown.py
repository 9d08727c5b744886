"""Deadlines of calls to servers: a node that stood still does not blame them."""

import asyncio
import threading
import time
from datetime import datetime

import pytest
from msgspec import structs

from leveret.clock import Clock
from leveret.job_service.shards import ShardsSettings, countdown
from leveret.job_service.shards.countdown import LATE_STEPS_MAX, STEPS, Countdown, Deadline
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.timestamps import to_timestamp
from tests.jobs.shards.deployment import QUIET, TOPIC, WITHIN_S, Deployment

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

SHORT_S = 0.4
LONG_S = 2.0


async def stand_still(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251


def test_an_answer_that_came_while_the_node_stood_still_is_in_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        peer = threading.Timer(SHORT_S, loop.call_soon_threadsafe, (answer.set_result, "yes"))
        async with Deadline(SHORT_S):
            peer.start()
            await stand_still(3 * SHORT_S)
            peer.join()  # it may be slower, and has answered then
            assert await answer == "yes"

    asyncio.run(main())


def test_a_silent_peer_exceeds_its_deadline() -> None:
    async def main() -> None:
        began_s = time.monotonic()
        with pytest.raises(TimeoutError):
            async with Deadline(SHORT_S):
                await asyncio.Event().wait()
        assert time.monotonic() - began_s >= SHORT_S

    asyncio.run(main())


def test_a_node_that_stands_still_again_and_again_has_an_end_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(countdown, "LATE_S", -1.0)  # every timer is late

    async def main() -> None:
        began_s = time.monotonic()
        has_ended = asyncio.Event()
        Countdown(SHORT_S, has_ended.set)
        await has_ended.wait()
        assert time.monotonic() - began_s >= SHORT_S / STEPS * (STEPS + LATE_STEPS_MAX)

    asyncio.run(main())


class LateConnection:
    """The first answer is read late, because the node stands still meanwhile."""

    def __init__(self) -> None:
        self.questions = 0

    async def fetchrow(self, _: str) -> tuple[datetime, bool]:
        self.questions += 1
        answer = to_timestamp(Clock().now_ms()), False
        if self.questions == 1:
            await stand_still(2 * SHORT_S)
        return answer


def test_a_clock_is_read_again_if_the_node_stood_still_meanwhile() -> None:
    async def main() -> None:
        settings = ShardsSettings(deadline_s=SHORT_S)
        shard = Shard(0, "postgresql://localhost/jobs", settings, Clock())
        connection = LateConnection()
        await shard._measure(connection)
        assert connection.questions >= 2
        assert shard.health.skew_ms is not None
        assert abs(shard.health.skew_ms) <= SHORT_S * 1000 / 2 + 1

    asyncio.run(main())


def test_a_node_that_stood_still_does_not_count_its_servers_as_down(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        store = await deployment.started(settings=structs.replace(QUIET, deadline_s=LONG_S))
        shard, failures = store._shards[0], store._shards[0].health.failures
        calls = [shard.fetch("SELECT 1"), store._redis.buffers(), store._redis.read(TOPIC, 1, 1)]
        tasks = [asyncio.get_running_loop().create_task(call) for call in calls]
        await asyncio.sleep(0)  # they have asked
        await stand_still(LONG_S + 1.0)
        await asyncio.gather(*tasks)
        assert shard.health.failures == failures
        await store.stop(WITHIN_S)

    asyncio.run(main())
