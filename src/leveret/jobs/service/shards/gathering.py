"""Callers that want the same of a shard at the same time share one statement.

While a statement of a topic is on its way, those who come gather; the next one is for all of them.
A lone caller waits for nobody. What one job costs a shard alone, its transaction and its sync, is
then the cost of as many jobs as there are callers.

A caller that gives up (its client has gone) leaves its answer behind: what was handed out for it
comes back when its lease ends, as if the answer had been lost on the wire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from leveret.jobs.service.items import Handle, LeasedJob
from leveret.jobs.service.store import Outcome

CALLERS_MAX: Final = 32  # that share a statement; each may name a thousand jobs

Key = TypeVar("Key", bound=Hashable)
Wish = TypeVar("Wish")
Answer = TypeVar("Answer")
Work = Callable[[Key, list[Wish]], Awaitable[Sequence[Answer]]]


class Gathering(Generic[Key, Wish, Answer]):
    """Wishes by key, answered together: one answer for each wish, in the same order."""

    def __init__(self, work: Work[Key, Wish, Answer], wishes_max: int) -> None:
        self._work = work
        self._wishes_max = wishes_max  # of one statement
        self._waiting: dict[Key, list[tuple[Wish, asyncio.Future[Answer]]]] = {}
        self._workers: dict[Key, asyncio.Task[None]] = {}

    async def ask(self, key: Key, wish: Wish) -> Answer:
        """The answer to a wish; raises what the work raised."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append((wish, answer))
        if key not in self._workers:
            work = asyncio.get_running_loop().create_task(self._serve(key))
            self._workers[key] = work
        return await answer

    async def _serve(self, key: Key) -> None:
        try:
            while waiting := self._waiting.pop(key, None):
                some, rest = waiting[: self._wishes_max], waiting[self._wishes_max :]
                if rest:
                    self._waiting[key] = rest
                await self._serve_some(key, [each for each in some if not each[1].done()])
        finally:
            del self._workers[key]

    async def _serve_some(
        self, key: Key, some: list[tuple[Wish, "asyncio.Future[Answer]"]]
    ) -> None:
        if not some:
            return
        try:
            answers = await self._work(key, [wish for wish, _ in some])
        except BaseException as fault:
            for _, answer in some:
                if not answer.done():
                    answer.set_exception(fault)
            if not isinstance(fault, Exception):
                raise
            return
        for (_, answer), found in zip(some, answers, strict=True):
            if not answer.done():
                answer.set_result(found)


async def acked_together(
    ack: Callable[[list[Handle]], Awaitable[list[Outcome]]], wishes: list[list[Handle]]
) -> list[list[Outcome]]:
    """The outcomes of each caller, from one ack. Of those who name one lease, one is the first."""
    found = iter(await ack([handle for wish in wishes for handle in wish]))
    return [[next(found) for _ in wish] for wish in wishes]


def shares(jobs: list[LeasedJob], limits: list[int]) -> list[list[LeasedJob]]:
    """What each caller gets: those who came first get the most urgent jobs."""
    found = []
    for limit in limits:
        found.append(jobs[:limit])
        jobs = jobs[limit:]
    return found
