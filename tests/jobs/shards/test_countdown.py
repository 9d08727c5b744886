"""Deadlines of calls to servers: a node that stood still does not blame them."""

import asyncio
import threading
import time

import pytest
from msgspec import structs

from leveret.job_service.shards import countdown
from leveret.job_service.shards.countdown import LATE_STEPS_MAX, STEPS, Countdown, Deadline
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
            assert await answer == "yes"
        peer.join()

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
