"""`reshard`: move jobs from N PostgreSQL shards to M, topic by topic, while the service runs.

Spark copies large topics ahead of time, while the service still uses them. A topic is frozen only
to copy later changes, to compare both shards, and to switch the map. `leveret.job_service.shards.
resharding` owns the steps and explains why they are safe. After a kill, run the same call again: it
continues.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyspark.sql import SparkSession

from leveret.job_service.shards.resharding.copying_ahead import BATCH_ROWS, CopyRange, split_topic
from leveret.job_service.shards.resharding.resharding import (
    NODES_WITHIN_S,
    MovedTopic,
    PlannedTopic,
    ReportStep,
    Resharding,
)
from leveret.job_service.shards.resharding.topic_mover import open_mover
from leveret.pipeline.shards import read_jobs
from leveret.pipeline.transforms.resharding import duplicated, group_by_size, on_wrong_shard

AHEAD_FROM: Final = 1_000  # a topic with so many jobs is copied ahead
GROUP_ROWS: Final = 1_000_000  # jobs of a group of topics that is copied ahead and then moved
PART_ROWS: Final = 20_000  # jobs of one task
FAULTS_SHOWN: Final = 20

Answer = TypeVar("Answer")
CopyAhead = Callable[
    [list[CopyRange], int, float | None], int
]  # parts, batch rows, rate: how many were new
# Starts Spark when the first copy is needed. Called in the main thread, where Spark handles Ctrl+C.
StartCopying = Callable[[], CopyAhead]


@dataclass(frozen=True)
class ReshardRequest:
    """The shards, their new number, and the options."""

    dsns: tuple[str, ...]  # all shards before and after, in their order
    to: int
    rate: int | None = None  # jobs copied ahead per second
    batch_rows: int = BATCH_ROWS
    ahead_from: int = AHEAD_FROM
    nodes_within_s: float = NODES_WITHIN_S  # limit until every shard knows every node


@dataclass(frozen=True)
class ReshardProgress:
    """The progress of a run."""

    topics: int
    topics_all: int
    jobs: int
    now: str
    seconds: float

    def line(self) -> str:
        done = f"{self.topics} of {self.topics_all} topics, {self.jobs:,} jobs"
        return f"{done}, {self.seconds:.0f} s: {self.now}"

    def change_key(self) -> object:
        return self.topics, self.now


@dataclass
class Resharded:
    """The result of a run."""

    shards_before: int = 0
    shards: int = 0
    jobs: int = 0
    copied_ahead: int = 0
    topics: list[MovedTopic] = field(default_factory=list)
    frozen_ms_max: float = 0.0
    seconds: float = 0.0


@dataclass
class Verified:
    """The result of `verify`."""

    shards: int = 0
    jobs: int = 0
    topics: int = 0
    unsettled: list[str] = field(default_factory=list)  # topics that are being moved
    misplaced: list[dict[str, Any]] = field(default_factory=list)
    doubled: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not (self.unsettled or self.misplaced or self.doubled)


def plan(request: ReshardRequest) -> tuple[int, list[PlannedTopic]]:
    """Return the number of shards and the topics that would move. Changes nothing."""

    async def work(resharding: Resharding) -> tuple[int, list[PlannedTopic]]:
        await resharding.read_state()
        return resharding.count, [each for each in await resharding.plan() if each.is_moving]

    return _with(request, work, _silent)


def reshard(
    ahead: StartCopying,
    request: ReshardRequest,
    on_progress: Callable[[ReshardProgress], None],
    on_step: ReportStep = lambda step, topic: None,
) -> Resharded:
    """Move every topic to its shard under the new number of shards, and set that number.

    `ahead` starts Spark and returns the function that copies large topics while they are served:
    `leveret.pipeline.shards.copy_ahead` bound to that session.
    """
    work = _Run(ahead, request, on_progress)

    def tell(step: str, topic: tuple[str, str] | None) -> None:
        work.tell(step, topic)
        on_step(step, topic)

    return _with(request, work.run, tell)


def verify(spark: SparkSession, dsns: tuple[str, ...]) -> Verified:
    """Check that every job is on the shard of its topic, and on no other."""

    async def look(resharding: Resharding) -> tuple[int, list[PlannedTopic]]:
        await resharding.read_state()
        return resharding.count, await resharding.plan(with_sizes=False)

    count, planned = _with(ReshardRequest(dsns, 0), look, _silent)
    places = [(*each.topic, each.shard) for each in planned]
    frame = spark.createDataFrame(places, "namespace string, topic string, home int")
    jobs = read_jobs(spark, dsns, columns=("id", "namespace", "topic")).persist()
    try:
        return Verified(
            shards=count,
            jobs=jobs.count(),
            topics=len(planned),
            unsettled=[each.topic[1] for each in planned if not each.is_settled],
            misplaced=_rows(on_wrong_shard(jobs, frame)),
            doubled=_rows(duplicated(jobs)),
        )
    finally:
        jobs.unpersist()


def _rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.limit(FAULTS_SHOWN).collect()]


def _silent(step: str, topic: tuple[str, str] | None) -> None:
    pass


def _with(
    request: ReshardRequest,
    work: Callable[[Resharding], Coroutine[Any, Any, Answer]],
    tell: ReportStep,
) -> Answer:
    async def run() -> Answer:
        async with open_mover(request.dsns) as moving:
            return await work(Resharding(moving, request.to, tell))

    return asyncio.run(run())


class _Run:
    """One run of `reshard`."""

    def __init__(
        self,
        ahead: StartCopying,
        request: ReshardRequest,
        on_progress: Callable[[ReshardProgress], None],
    ) -> None:
        self._ahead = ahead
        self._request = request
        self._on_progress = on_progress
        self._begun_s = time.monotonic()
        self._all = 0
        self.done = Resharded()

    def tell(self, step: str, topic: tuple[str, str] | None) -> None:
        if topic is None:  # the steps of one topic are too short to report
            self._show(step)

    def _show(self, now: str) -> None:
        done, seconds = self.done, time.monotonic() - self._begun_s
        self._on_progress(ReshardProgress(len(done.topics), self._all, done.jobs, now, seconds))

    async def run(self, resharding: Resharding) -> Resharded:
        await resharding.begin(self._request.nodes_within_s)
        self.done.shards_before, self.done.shards = resharding.count, resharding.to
        await self._move_all(resharding, await resharding.plan())
        await resharding.narrow()
        while left := _left(await resharding.plan(with_sizes=False)):
            await self._move_all(resharding, left)
        await resharding.carry_marks()
        await resharding.set_count()
        await resharding.open()
        await resharding.tidy()
        self.done.seconds = round(time.monotonic() - self._begun_s, 1)
        return self.done

    async def _move_all(self, resharding: Resharding, planned: list[PlannedTopic]) -> None:
        left = _left(planned)
        self._all += len(left)
        for group in group_by_size([(each, each.jobs) for each in left], GROUP_ROWS):
            await self._copy_ahead(resharding, group)
            for each in group:
                moved = await resharding.move(each)
                self.done.topics.append(moved)
                self.done.jobs += moved.rows.get("items", 0)
                self.done.frozen_ms_max = max(self.done.frozen_ms_max, moved.frozen_ms)
                self._show(f"{moved.topic} was frozen for {moved.frozen_ms:.0f} ms")

    async def _copy_ahead(self, resharding: Resharding, group: list[PlannedTopic]) -> None:
        """Copy large topics to their new shards with Spark, while they are served."""
        parts: list[CopyRange] = []
        for each in group:
            if each.is_moving and each.jobs >= self._request.ahead_from:
                await resharding.mover.arrive(each.topic, each.home)
                source, target = self._request.dsns[each.shard], self._request.dsns[each.home]
                database = resharding.mover.databases[each.shard]
                parts += await split_topic(database, source, target, each.topic, PART_ROWS)
        if parts:
            self._show(f"copying {len(parts)} parts ahead")
            request = self._request
            copy = self._ahead()
            copied = await asyncio.to_thread(copy, parts, request.batch_rows, request.rate)
            self.done.copied_ahead += copied
            for home in {each.home for each in group}:  # update the planner's statistics
                await resharding.mover.databases[home].execute("ANALYZE items")
            resharding.tell("copied", None)


def _left(planned: list[PlannedTopic]) -> list[PlannedTopic]:
    return [each for each in planned if not each.is_settled]
