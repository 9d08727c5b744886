"""Concurrent callers of a shard share one statement."""

import asyncio

from leveret.job_model import Handle, Outcome
from leveret.job_service.shards.batching import AckBatcher, Batcher


class Shard:
    """Doubles numbers, slowly enough for callers to gather; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.answered = 0  # statements that were carried out to the end

    async def work(self, key: str, requests: list[int]) -> list[int]:
        self.asked.append(requests)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if 13 in requests:
            raise ValueError("13")
        self.answered += 1
        return [request * 2 for request in requests]


def test_those_who_come_meanwhile_share_the_next_statement() -> None:
    async def script() -> None:
        shard = Shard()
        gathering = Batcher(shard.work, 3)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(gathering.ask("t", 1))
            await asyncio.sleep(0)
            rest = await asyncio.gather(*(gathering.ask("t", number) for number in (2, 3, 4, 5)))
        assert (first.result(), rest) == (2, [4, 6, 8, 10])
        assert shard.asked == [[1], [2, 3, 4], [5]]
        assert await gathering.ask("u", 6) == 12

    asyncio.run(script())


def test_a_fault_is_told_to_those_who_shared_it_and_to_no_other() -> None:
    async def script() -> None:
        shard = Shard()
        gathering = Batcher(shard.work, 2)
        requests = (gathering.ask("t", number) for number in (1, 13, 3))  # the first is alone
        found = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(each) for each in found] == [int, ValueError, ValueError]

    asyncio.run(script())


def test_a_caller_that_gave_up_is_not_asked_for() -> None:
    async def script() -> None:
        shard = Shard()
        gathering = Batcher(shard.work, 9)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(gathering.ask("t", 1))
            await asyncio.sleep(0)
            gone = group.create_task(gathering.ask("t", 2))
            stays = group.create_task(gathering.ask("t", 3))
            await asyncio.sleep(0)
            gone.cancel()
        assert (first.result(), stays.result()) == (2, 6)
        assert 2 not in [request for requests in shard.asked for request in requests]

    asyncio.run(script())


def test_work_of_a_caller_that_may_leave_goes_on_without_it() -> None:
    async def script() -> None:
        shard = Shard()
        gathering = Batcher(shard.work, 9)
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(gathering.ask("t", 1, may_leave=True))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            gone.cancel()
            stays = group.create_task(gathering.ask("t", 2))
        assert (stays.result(), shard.asked, shard.answered) == (4, [[1], [2]], 2)

    asyncio.run(script())


def test_a_cancelled_caller_leaves_the_others_their_answers() -> None:
    async def script() -> None:
        shard = Shard()
        gathering = Batcher(shard.work, 9)
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(gathering.ask("t", 1))
            stays = group.create_task(gathering.ask("t", 2))
            await asyncio.sleep(0)
            gone.cancel()
        assert (stays.result(), shard.asked, shard.answered) == (4, [[1], [2]], 1)
        assert await gathering.ask("t", 3) == 6

    asyncio.run(script())


def test_outcomes_go_back_to_those_who_asked() -> None:
    async def ack(topic: tuple[str, str], handles: list[Handle]) -> list[Outcome]:
        assert topic == ("n", "t")
        await asyncio.sleep(0)
        return [Outcome.STALE if handle.id == 9 else Outcome.DONE for handle in handles]

    requests = [[Handle(1), Handle(9)], [], [Handle(2)]]

    async def script() -> list[list[Outcome]]:
        acks = AckBatcher(ack)
        return list(await asyncio.gather(*(acks.ack(("n", "t"), request) for request in requests)))

    assert asyncio.run(script()) == [[Outcome.DONE, Outcome.STALE], [], [Outcome.DONE]]
