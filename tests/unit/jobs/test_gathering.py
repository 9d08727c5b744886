"""Callers of a shard that come together share one statement."""

import asyncio

from leveret.job_model import Handle, Outcome
from leveret.job_service.shards.gathering import Acks, Gathering


class Shard:
    """Doubles numbers, slowly enough for callers to gather; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    async def work(self, key: str, wishes: list[int]) -> list[int]:
        self.asked.append(wishes)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if 13 in wishes:
            raise ValueError("13")
        return [wish * 2 for wish in wishes]


def test_those_who_come_meanwhile_share_the_next_statement() -> None:
    async def script() -> None:
        shard = Shard()
        gathering = Gathering(shard.work, 3)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(gathering.ask("t", 1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            rest = await asyncio.gather(*(gathering.ask("t", number) for number in (2, 3, 4, 5)))
        assert (first.result(), rest) == (2, [4, 6, 8, 10])
        assert shard.asked == [[1], [2, 3, 4], [5]]
        assert await gathering.ask("u", 6) == 12

    asyncio.run(script())


def test_a_fault_is_told_to_those_who_shared_it_and_to_no_other() -> None:
    async def script() -> None:
        shard = Shard()
        gathering = Gathering(shard.work, 2)
        wishes = (gathering.ask("t", number) for number in (1, 13, 3))
        found = await asyncio.gather(*wishes, return_exceptions=True)
        assert [type(each) for each in found] == [ValueError, ValueError, int]

    asyncio.run(script())


def test_a_caller_that_gave_up_is_not_asked_for() -> None:
    async def script() -> None:
        shard = Shard()
        gathering = Gathering(shard.work, 9)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(gathering.ask("t", 1))
            await asyncio.sleep(0)
            gone = group.create_task(gathering.ask("t", 2))
            stays = group.create_task(gathering.ask("t", 3))
            await asyncio.sleep(0)
            gone.cancel()
        assert (first.result(), stays.result()) == (2, 6)
        assert 2 not in [wish for wishes in shard.asked for wish in wishes]

    asyncio.run(script())


def test_outcomes_go_back_to_those_who_asked() -> None:
    async def ack(topic: tuple[str, str], handles: list[Handle]) -> list[Outcome]:
        assert topic == ("n", "t")
        await asyncio.sleep(0)
        return [Outcome.STALE if handle.id == 9 else Outcome.DONE for handle in handles]

    wishes = [[Handle(1), Handle(9)], [], [Handle(2)]]

    async def script() -> list[list[Outcome]]:
        acks = Acks(ack)
        return list(await asyncio.gather(*(acks.ask(("n", "t"), wish) for wish in wishes)))

    assert asyncio.run(script()) == [[Outcome.DONE, Outcome.STALE], [], [Outcome.DONE]]
