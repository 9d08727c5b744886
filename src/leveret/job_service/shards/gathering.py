"""Callers that want the same of a shard at the same time share one statement.

While a statement of a topic is on its way, those who come gather; the next one is for all of them.
A lone caller waits for nobody. What one job costs a shard alone, its transaction and its sync, is
then the cost of as many jobs as there are callers.

A caller that gives up (its client has gone) leaves its answer behind: what was handed out for it
comes back when its lease ends, as if the answer had been lost on the wire.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from leveret.errors import JobsError
from leveret.job_model import BATCH_BYTES_MAX, Handle, LeasedJob, Outcome
from leveret.job_service.shards.memory import Topic

CALLERS_MAX: Final = 32  # that share a statement; each may name a thousand jobs

log = logging.getLogger(__name__)

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


class Acks:
    """Acks of callers, by topic."""

    def __init__(self, ack: Callable[[Topic, list[Handle]], Awaitable[list[Outcome]]]) -> None:
        self._ack = ack
        self._gathering = Gathering(self._together, CALLERS_MAX)

    async def ask(self, topic: Topic, handles: list[Handle]) -> list[Outcome]:
        return await self._gathering.ask(topic, handles)

    async def _together(self, topic: Topic, wishes: list[list[Handle]]) -> list[list[Outcome]]:
        """The outcomes of each caller, from one ack. Of those who name one lease, one is first."""
        found = iter(await self._ack(topic, [handle for wish in wishes for handle in wish]))
        return [[next(found) for _ in wish] for wish in wishes]


class Claims:
    """Claims of callers, by topic and length of the lease."""

    def __init__(
        self, claim: Callable[[Topic, int, int | None], Awaitable[list[LeasedJob]]]
    ) -> None:
        self._claim = claim
        self._gathering = Gathering(self._together, CALLERS_MAX)

    async def ask(self, topic: Topic, limit: int, lease_ms: int | None) -> list[LeasedJob]:
        return await self._gathering.ask((topic, lease_ms), limit)

    async def _together(
        self, key: tuple[Topic, int | None], limits: list[int]
    ) -> list[list[LeasedJob]]:
        """What each caller gets: those who came first get the most urgent jobs.

        A claim that was cut short by its bytes leaves some without: another one is for them.
        """
        found: list[list[LeasedJob]] = []
        while len(found) < len(limits):
            left = limits[len(found) :]
            try:
                jobs = await self._claim(key[0], sum(left), key[1])
            except JobsError as error:
                if not found:
                    raise
                log.info("no more jobs for those who asked together: %s", error)
                return found + [[] for _ in left]
            is_cut = sum(len(job.payload) for job in jobs) >= BATCH_BYTES_MAX
            for limit in left:
                if is_cut and not jobs:
                    break
                found.append(jobs[:limit])
                jobs = jobs[limit:]
        return found
