"""`reshard`: jobs from N PostgreSQL shards to M, topic by topic, while the service runs.

Spark copies what is large ahead of time, while it is still served; a topic is frozen only for what
has changed since, for the comparison of both sides and for the switch of the map. The steps and
what makes them safe are in `leveret.job_service.shards.resharding`; the same call again goes on
where one was killed.
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
from leveret.pipeline.transforms.resharding import doubled, misplaced, waves

AHEAD_FROM: Final = 1_000  # jobs of a topic that are worth copying ahead
WAVE_ROWS: Final = 1_000_000  # jobs that are copied ahead before their topics are moved
PART_ROWS: Final = 20_000  # of one task
FAULTS_SHOWN: Final = 20

Answer = TypeVar("Answer")
Copy = Callable[
    [list[CopyRange], int, float | None], int
]  # parts, batch rows, rate: how many were new
# Gets ready to copy, when it is needed. Called in the main thread: Spark takes Ctrl+C only there.
Ahead = Callable[[], Copy]


@dataclass(frozen=True)
class Asked:
    """What is to be done, and how fast."""

    dsns: tuple[str, ...]  # all shards before and after, in their order
    to: int
    rate: int | None = None  # jobs a second that are copied ahead
    batch_rows: int = BATCH_ROWS
    ahead_from: int = AHEAD_FROM
    nodes_within_s: float = NODES_WITHIN_S  # every node must be known to every shard


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    topics: int
    topics_all: int
    jobs: int
    now: str
    seconds: float

    def line(self) -> str:
        done = f"{self.topics} of {self.topics_all} topics, {self.jobs:,} jobs"
        return f"{done}, {self.seconds:.0f} s: {self.now}"

    def place(self) -> object:
        return self.topics, self.now


@dataclass
class Resharded:
    """What was done."""

    shards_before: int = 0
    shards: int = 0
    jobs: int = 0
    copied_ahead: int = 0
    topics: list[MovedTopic] = field(default_factory=list)
    frozen_ms_max: float = 0.0
    seconds: float = 0.0


@dataclass
class Verified:
    """What a look at all shards found."""

    shards: int = 0
    jobs: int = 0
    topics: int = 0
    unsettled: list[str] = field(default_factory=list)  # topics that are on their way
    misplaced: list[dict[str, Any]] = field(default_factory=list)
    doubled: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not (self.unsettled or self.misplaced or self.doubled)


def plan(asked: Asked) -> tuple[int, list[PlannedTopic]]:
    """How many shards there are, and the topics that would move; changes nothing."""

    async def work(resharding: Resharding) -> tuple[int, list[PlannedTopic]]:
        await resharding.read_state()
        return resharding.count, [each for each in await resharding.plan() if each.is_moving]

    return _with(asked, work, _silent)


def reshard(
    ahead: Ahead,
    asked: Asked,
    on_progress: Callable[[Progress], None],
    on_step: ReportStep = lambda step, topic: None,
) -> Resharded:
    """Move every topic to where the new number of shards has it, and set that number.

    `ahead` starts Spark and answers what copies large topics while they are served:
    `leveret.pipeline.shards.copy_ahead` with that session.
    """
    work = _Work(ahead, asked, on_progress)

    def tell(step: str, topic: tuple[str, str] | None) -> None:
        work.tell(step, topic)
        on_step(step, topic)

    return _with(asked, work.run, tell)


def verify(spark: SparkSession, dsns: tuple[str, ...]) -> Verified:
    """Compare all jobs of all shards with the map."""

    async def look(resharding: Resharding) -> tuple[int, list[PlannedTopic]]:
        await resharding.read_state()
        return resharding.count, await resharding.plan(with_sizes=False)

    count, planned = _with(Asked(dsns, 0), look, _silent)
    places = [(*each.topic, each.shard) for each in planned]
    frame = spark.createDataFrame(places, "namespace string, topic string, home int")
    jobs = read_jobs(spark, dsns, columns=("id", "namespace", "topic")).persist()
    try:
        return Verified(
            shards=count,
            jobs=jobs.count(),
            topics=len(planned),
            unsettled=[each.topic[1] for each in planned if not each.is_settled],
            misplaced=_rows(misplaced(jobs, frame)),
            doubled=_rows(doubled(jobs)),
        )
    finally:
        jobs.unpersist()


def _rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.limit(FAULTS_SHOWN).collect()]


def _silent(step: str, topic: tuple[str, str] | None) -> None:
    pass


def _with(
    asked: Asked, work: Callable[[Resharding], Coroutine[Any, Any, Answer]], tell: ReportStep
) -> Answer:
    async def run() -> Answer:
        async with open_mover(asked.dsns) as mover:
            return await work(Resharding(mover, asked.to, tell))

    return asyncio.run(run())


class _Work:
    """One run."""

    def __init__(self, ahead: Ahead, asked: Asked, on_progress: Callable[[Progress], None]) -> None:
        self._ahead = ahead
        self._asked = asked
        self._on_progress = on_progress
        self._begun_s = time.monotonic()
        self._all = 0
        self.done = Resharded()

    def tell(self, step: str, topic: tuple[str, str] | None) -> None:
        if topic is None:  # the steps of a topic take no time to speak of
            self._show(step)

    def _show(self, now: str) -> None:
        done, seconds = self.done, time.monotonic() - self._begun_s
        self._on_progress(Progress(len(done.topics), self._all, done.jobs, now, seconds))

    async def run(self, resharding: Resharding) -> Resharded:
        await resharding.begin(self._asked.nodes_within_s)
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
        for wave in waves([(each, each.jobs) for each in left], WAVE_ROWS):
            await self._copy_ahead(resharding, wave)
            for each in wave:
                moved = await resharding.move(each)
                self.done.topics.append(moved)
                self.done.jobs += moved.rows.get("items", 0)
                self.done.frozen_ms_max = max(self.done.frozen_ms_max, moved.frozen_ms)
                self._show(f"{moved.topic} was frozen for {moved.frozen_ms:.0f} ms")

    async def _copy_ahead(self, resharding: Resharding, wave: list[PlannedTopic]) -> None:
        """Large topics go to their new shards by Spark, while they are served."""
        parts: list[CopyRange] = []
        for each in wave:
            if each.is_moving and each.jobs >= self._asked.ahead_from:
                await resharding.mover.arrive(each.topic, each.home)
                source, target = self._asked.dsns[each.shard], self._asked.dsns[each.home]
                database = resharding.mover.databases[each.shard]
                parts += await split_topic(database, source, target, each.topic, PART_ROWS)
        if parts:
            self._show(f"copying {len(parts)} parts ahead")
            asked = self._asked
            copy = self._ahead()
            copied = await asyncio.to_thread(copy, parts, asked.batch_rows, asked.rate)
            self.done.copied_ahead += copied
            for home in {each.home for each in wave}:  # so many rows are news to its planner
                await resharding.mover.databases[home].execute("ANALYZE items")
            resharding.tell("copied", None)


def _left(planned: list[PlannedTopic]) -> list[PlannedTopic]:
    return [each for each in planned if not each.is_settled]
