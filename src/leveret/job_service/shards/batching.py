"""Batches equal calls of concurrent callers into one statement.

While a statement of a topic is on its way, new calls wait; the next statement serves all of them. A
lone caller does not wait, and needs no task. The fixed cost of a statement, its transaction and its
sync, is then shared by all callers.

Jobs that were handed out to a caller that has gone meanwhile come back when their leases end, as if
the answer had been lost on the wire.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from leveret.errors import JobsError
from leveret.job_model import BATCH_BYTES_MAX, Handle, LeasedJob, Outcome
from leveret.job_service.shards.topic_name import TopicName

CALLERS_MAX: Final = 32  # that share a statement; each may name a thousand jobs

log = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Request = TypeVar("Request")
Answer = TypeVar("Answer")
Work = Callable[[Key, list[Request]], Awaitable[Sequence[Answer]]]


class Batcher(Generic[Key, Request, Answer]):
    """Collects requests by key and answers them together: one answer for each, in order."""

    def __init__(self, work: Work[Key, Request, Answer], requests_max: int) -> None:
        self._work = work
        self._requests_max = requests_max  # of one statement
        self._waiting: dict[Key, list[tuple[Request, asyncio.Future[Answer]]]] = {}
        # Keys with a statement on its way, and the task that serves them; None: a lone caller does.
        self._busy: dict[Key, asyncio.Task[None] | None] = {}

    async def ask(self, key: Key, request: Request, *, may_leave: bool = False) -> Answer:
        """Return the answer to a request, or raise the error of the work.

        `may_leave`: the caller may be cancelled. A task of its own does the work then, so that no
        statement is broken off.
        """
        if not self.is_busy(key) and not may_leave:
            return await self._serve_one(key, request)
        return await self.join(key, request)

    def join(self, key: Key, request: Request) -> "asyncio.Future[Answer]":
        """Return the future of the answer to a request, which a task of its own serves."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.setdefault(key, []).append((request, answer))
        if not self.is_busy(key):
            self._busy[key] = loop.create_task(self._serve(key))
        return answer

    async def _serve_one(self, key: Key, request: Request) -> Answer:
        """Serve a lone caller in its own task. A task serves the callers that come meanwhile."""
        self.begin_alone(key)
        try:
            (answer,) = await self._work(key, [request])
            return answer
        finally:
            self.end_alone(key)

    def is_busy(self, key: Key) -> bool:
        """Return whether a statement of a key is on its way."""
        return key in self._busy

    def begin_alone(self, key: Key) -> None:
        """Let callers wait: a lone caller has its own statement on its way."""
        self._busy[key] = None

    def end_alone(self, key: Key) -> None:
        """Serve the callers that came while a lone caller had its statement on its way."""
        if key in self._waiting:
            self._busy[key] = asyncio.get_running_loop().create_task(self._serve(key))
        else:
            del self._busy[key]

    async def _serve(self, key: Key) -> None:
        try:
            while waiting := self._waiting.pop(key, None):
                some, rest = waiting[: self._requests_max], waiting[self._requests_max :]
                if rest:
                    self._waiting[key] = rest
                await self._serve_some(key, [each for each in some if not each[1].done()])
        finally:
            del self._busy[key]

    async def _serve_some(
        self, key: Key, some: list[tuple[Request, "asyncio.Future[Answer]"]]
    ) -> None:
        if not some:
            return
        try:
            answers = await self._work(key, [request for request, _ in some])
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


class AckBatcher:
    """Batches acks by topic."""

    def __init__(self, ack: Callable[[TopicName, list[Handle]], Awaitable[list[Outcome]]]) -> None:
        self._ack = ack
        self._batcher = Batcher(self._do_all, CALLERS_MAX)

    async def ack(self, topic: TopicName, handles: list[Handle]) -> list[Outcome]:
        return await self._batcher.ask(topic, handles)

    async def _do_all(self, topic: TopicName, requests: list[list[Handle]]) -> list[list[Outcome]]:
        """Ack for all callers at once. Where several name the same lease, the first one gets it."""
        handles = [handle for request in requests for handle in request]
        distinct = list(dict.fromkeys(handles))
        found = dict(zip(distinct, await self._ack(topic, distinct), strict=True))
        answers: list[list[Outcome]] = []
        for request in requests:
            answers.append([found[handle] for handle in request])
            found.update((each, Outcome.UNKNOWN) for each in request if found[each] is Outcome.DONE)
        return answers


class ClaimBatcher:
    """Batches claims by topic and duration of the lease."""

    def __init__(
        self, claim: Callable[[TopicName, int, int | None], Awaitable[list[LeasedJob]]]
    ) -> None:
        self._claim = claim
        self._batcher = Batcher(self._do_all, CALLERS_MAX)

    async def claim(
        self, topic: TopicName, limit: int, lease_ms: int | None, *, may_leave: bool
    ) -> list[LeasedJob]:
        return await self._batcher.ask((topic, lease_ms), limit, may_leave=may_leave)

    async def _do_all(
        self, key: tuple[TopicName, int | None], limits: list[int]
    ) -> list[list[LeasedJob]]:
        """Claim for all callers at once; the first callers get the most urgent jobs.

        Where the limit of bytes ended a claim early, another claim serves the other callers.
        """
        found: list[list[LeasedJob]] = []
        while len(found) < len(limits):
            left = limits[len(found) :]
            try:
                jobs = await self._claim(key[0], sum(left), key[1])
            except JobsError as error:
                if not found:
                    raise
                log.info("the other callers of a batch get no jobs: %s", error)
                return found + [[] for _ in left]
            is_cut = sum(len(job.payload) for job in jobs) >= BATCH_BYTES_MAX
            for limit in left:
                if is_cut and not jobs:
                    break
                found.append(jobs[:limit])
                jobs = jobs[limit:]
        return found
