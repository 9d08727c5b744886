"""`audit`: life events and queues as they are now, joined: is every message accounted for?

The moment comes first (`leveret.pipeline.moment`): the copies of all queues and the ends of their
chronicles, taken together by the broker. Then the chronicles are read up to these ends. What
happens meanwhile is behind them, so traffic makes no false alarms. History that the broker has
forgotten is taken from the lake, where that has it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.errors import PreconditionFailedError
from leveret.pipeline.lake import read_bronze
from leveret.pipeline.layout import BRONZE, Lake, table_name
from leveret.pipeline.moment import Chronicle, Moment, Queue, take_moment
from leveret.pipeline.site import Site
from leveret.pipeline.transforms import auditing, passages
from leveret.pipeline.transforms.life_events import COLUMNS, PUBLISHED, QUEUED, life_events
from pyspark_leveret.schema import TYPES

FAULTS_MAX: Final = 1000  # that are told of with all of their events; the rest is counted
NEVER_FLOOR: Final = 1 << 60
TASK_EVENTS: Final = 500_000  # of a shuffle's partition: more of them only cost
_SHUFFLE: Final = "spark.sql.shuffle.partitions"

OnStep = Callable[["Step"], None]


@dataclass(frozen=True)
class Step:
    """How far an audit is."""

    text: str

    def line(self) -> str:
        return self.text

    def place(self) -> object:
        return self.text


@dataclass(frozen=True)
class Auditing:
    """What is audited."""

    queues: tuple[str, ...] = ()  # none: all that remember
    stuck_after_s: float | None = None
    with_transient: bool = True  # tell of lost messages that were not persistent
    faults_max: int = FAULTS_MAX


@dataclass
class Judgement:
    """What an audit has found. It is clean where there are no faults and all balances are 0."""

    time: str
    events: int  # steps in the lives of messages
    queues: list[dict[str, Any]] = field(default_factory=list)
    publishes: dict[str, int] = field(default_factory=dict)
    fault_count: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)  # the first of them

    @property
    def is_clean(self) -> bool:
        return self.fault_count == 0 and not any(queue["balance"] for queue in self.queues)


def audit(spark: SparkSession, site: Site, asked: Auditing, on_step: OnStep) -> Judgement:
    """Audit queues of a vhost as they are now."""
    moment = take_moment(site, asked.queues)
    count = sum(one.end - one.first for one in moment.chronicles)
    text = f"{len(moment.queues)} queues with {moment.copies():,} messages"
    on_step(Step(f"{text}; reading {count:,} events of {len(moment.chronicles)} streams"))
    history, floors = read_history(spark, site, moment, on_step)
    return judge(spark, history, moment, floors, asked, on_step)


# ---- what is read


def read_history(
    spark: SparkSession, site: Site, moment: Moment, on_step: OnStep
) -> tuple[DataFrame, dict[str, int]]:
    """The chronicles up to the moment, and from which offset on each of them is there."""
    frames, floors = [], {}
    for one in moment.chronicles:
        given = site.options(stream=one.name, startingOffsets=one.first, endingOffsets=one.end)
        schema = ", ".join(f"`{name}` {TYPES[name]}" for name in COLUMNS)
        frames.append(spark.read.format("leveret").options(**given).schema(schema).load())
        floors[one.name] = one.first
        older = _archived(spark, site, one)
        if older is not None:
            frames.append(older[0])
            floors[one.name] = older[1]
            on_step(Step(f"{one.name}: {one.first - older[1]:,} older events are in the lake"))
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole, floors


def _archived(spark: SparkSession, site: Site, one: Chronicle) -> tuple[DataFrame, int] | None:
    """What the lake has of a chronicle and the broker has not, and the first offset of it."""
    table = table_name(site.vhost, one.name)
    if site.lake_dir is None or one.first == 0:
        return None
    lake = Lake(site.lake_path)
    if table not in lake.tables(BRONZE):
        return None
    older = read_bronze(spark, lake, table).where(
        (f.col("stream") == one.name) & (f.col("offset") < one.first)
    )
    count, first = older.agg(f.count("*"), f.min("offset")).collect()[0]
    if not count:
        return None
    if first + count != one.first:
        missing = one.first - first - count
        text = f"{missing} events of '{one.name}' are neither at the broker nor in the lake"
        raise PreconditionFailedError(f"{text}: archive it before its retention passes, or audit")
    return older.select(*COLUMNS), int(first)


# ---- what is judged


def judge(
    spark: SparkSession,
    history: DataFrame,
    moment: Moment,
    floors: dict[str, int],
    asked: Auditing,
    on_step: OnStep,
) -> Judgement:
    """The judgement on tables: what chronicles hold, and the moment that they lead up to."""
    steps = life_events(history).persist(StorageLevel.DISK_ONLY)
    before = spark.conf.get(_SHUFFLE)
    count = sum(one.end - floors[one.name] for one in moment.chronicles) + moment.copies()
    cores = spark.sparkContext.defaultParallelism
    spark.conf.set(_SHUFFLE, max(count // TASK_EVENTS, min(cores, count // 1000), 1))
    try:
        court = _Court(spark, steps, moment, floors, asked)
        on_step(Step(f"read {court.events:,} events"))
        return court.judge(on_step)
    finally:
        spark.conf.set(_SHUFFLE, before or "200")
        steps.unpersist()


class _Court:
    """One judgement: small tables of what is known, then the transforms."""

    def __init__(
        self,
        spark: SparkSession,
        steps: DataFrame,
        moment: Moment,
        floors: dict[str, int],
        asked: Auditing,
    ) -> None:
        self._spark = spark
        self._steps = steps
        self._moment = moment
        self._floors = floors
        self._asked = asked
        census = auditing.census(steps).collect()
        self.events = sum(row.events for row in census)
        arrivals = [row for row in census if row.event == QUEUED]
        # One stream follows another where a policy has changed: the first row of a queue counts.
        self._arrivals = {row.id: row for row in sorted(arrivals, key=lambda row: -row.first)}
        self._publishes = [row for row in census if row.event == PUBLISHED]
        cut = {name for name, floor in floors.items() if floor}
        starts: dict[str, int] = {}
        for row in census:
            if row.stream in cut:
                starts[row.stream] = min(starts.get(row.stream, row.first_ms), row.first_ms)
        # What happened at the first moment of a chronicle that was cut is known in part only.
        self._whole_from_ms = max(starts.values(), default=-1) + 1

    def judge(self, on_step: OnStep) -> Judgement:
        moment, steps = self._moment, self._steps
        runs = self._table(list(moment.runs()), auditing.RUNS_SCHEMA)
        found = auditing.judged(
            auditing.copies(steps, auditing.states(runs)),
            self._table(self._queues(), auditing.QUEUES_SCHEMA),
        )
        if not self._asked.with_transient:
            found = auditing.without_lost_transient(found)
        found = found.persist(StorageLevel.DISK_ONLY)
        published = passages.publishes(steps, self._chronicles(), self._telling()).persist(
            StorageLevel.DISK_ONLY
        )
        try:
            queues = [row.asDict() for row in auditing.balance(found).collect()]
            on_step(Step(f"added up {len(queues)} queues"))
            publishes = passages.publish_balance(published).collect()[0].asDict()
            on_step(Step(f"followed {publishes['published']:,} publishes"))
            time = datetime.fromtimestamp(moment.time_ms / 1000, UTC).isoformat()
            done = Judgement(time, self.events, queues, publishes)
            self._name_faults(done, found, published)
            return done
        finally:
            found.unpersist()
            published.unpersist()

    def _name_faults(self, done: Judgement, found: DataFrame, published: DataFrame) -> None:
        asked = self._asked
        faults = auditing.copy_faults(found, self._moment.time_ms, asked.stuck_after_s)
        faults = faults.unionByName(passages.publish_faults(published))
        faults = faults.unionByName(passages.dead_letter_faults(self._steps, self._next_places()))
        if asked.queues:
            faults = faults.where(f.col("queue").isin("", *asked.queues))
        faults = faults.persist(StorageLevel.DISK_ONLY)
        try:
            done.fault_count = faults.count()
            if done.fault_count:
                told = auditing.traces(faults.limit(asked.faults_max), self._steps)
                done.faults = [row.asDict(recursive=True) for row in told.collect()]
        finally:
            faults.unpersist()

    # Small tables

    def _table(self, rows: Sequence[tuple[object, ...]], schema: str) -> DataFrame:
        return self._spark.createDataFrame(list(rows), schema)

    def _queues(self) -> list[tuple[int, str, int, bool]]:
        """The queues that are judged, and from which copy on."""
        there = {queue.id: queue for queue in self._moment.queues}
        rows = [(one.id, one.name, self._floor(one), True) for one in there.values()]
        for id, row in self._arrivals.items():
            is_meant = not self._asked.queues or row.queue in self._asked.queues
            if id not in there and is_meant:
                rows.append((id, row.queue, row.first, False))
        return rows

    def _floor(self, queue: Queue) -> int:
        """The first copy whose whole life is known."""
        if queue.is_declared and self._floors.get(queue.stream) == 0:
            return 0
        first = self._arrivals.get(queue.id)
        return first.first if first is not None else NEVER_FLOOR

    def _chronicles(self) -> DataFrame:
        rows = [(one.id, self._floors[one.name]) for one in self._moment.chronicles]
        return self._table(rows, passages.CHRONICLES_SCHEMA)

    def _telling(self) -> DataFrame:
        return self._table(list(self._first_times().items()), passages.TELLING_SCHEMA)

    def _first_times(self) -> dict[str, int]:
        """Queues that are there and remember, and since when something is known of them."""
        there = {queue.name for queue in self._moment.queues}
        found: dict[str, int] = {}
        for row in self._arrivals.values():
            if row.queue in there:
                found[row.queue] = min(found.get(row.queue, row.first_ms), row.first_ms)
        return found

    def _next_places(self) -> DataFrame:
        """Where dead letters must turn up: where queues were declared so that it is certain."""
        times = self._first_times()
        rows: list[tuple[int, str | None, int]] = []
        exchanges = self._exchange_times()
        for queue in self._moment.queues:
            exchange, key = queue.dead_letter_exchange, queue.dead_letter_key
            if exchange == "" and key in times:
                rows.append((queue.id, key, max(times[key], self._whole_from_ms)))
            elif exchange in exchanges:
                rows.append((queue.id, None, max(exchanges[exchange], self._whole_from_ms)))
        return self._table(rows, passages.NEXT_SCHEMA)

    def _exchange_times(self) -> dict[str, int]:
        """Exchanges that remember, and since when messages to them are known."""
        streams = {one.name for one in self._moment.chronicles}
        names = {name for name, stream in self._moment.exchanges.items() if stream in streams}
        found: dict[str, int] = {}
        for row in self._publishes:
            if row.exchange in names:
                found[row.exchange] = min(found.get(row.exchange, row.first_ms), row.first_ms)
        return found
