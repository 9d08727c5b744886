"""`audit`: compare life events with the messages in queues, to find lost or duplicated messages.

First the broker takes a snapshot (`leveret.pipeline.snapshot`): the messages of all queues, and the
ends of their chronicles (streams of life events). Then the chronicles are read up to these ends.
Later events are not read, so traffic during the audit causes no false alarms. Events that retention
has deleted at the broker are read from the lake, if it has them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.errors import PreconditionFailedError
from leveret.lake.layout import BRONZE, Lake, table_name
from leveret.pipeline.environment import Environment
from leveret.pipeline.lake_tables import read_bronze
from leveret.pipeline.snapshot import Chronicle, QueueSnapshot, Snapshot, take_snapshot
from leveret.pipeline.transforms import copy_audit, routing_audit
from leveret.pipeline.transforms.life_events import COLUMNS, PUBLISHED, QUEUED, life_events
from pyspark_leveret.schema import TYPES

FAULTS_MAX: Final = 1000  # faults that are reported with events; more are only counted
NEVER_FLOOR: Final = 1 << 60
TASK_EVENTS: Final = 500_000  # of a shuffle partition; smaller partitions only add cost
_SHUFFLE: Final = "spark.sql.shuffle.partitions"

OnStep = Callable[["AuditStep"], None]


@dataclass(frozen=True)
class AuditStep:
    """The progress of an audit."""

    text: str

    def line(self) -> str:
        return self.text

    def change_key(self) -> object:
        return self.text


@dataclass(frozen=True)
class AuditRequest:
    """The queues to audit, and the options."""

    queues: tuple[str, ...] = ()  # empty: all queues that remember
    stuck_after_s: float | None = None
    with_transient: bool = True  # report lost messages that were not persistent
    faults_max: int = FAULTS_MAX


@dataclass
class AuditResult:
    """The result of an audit. It is clean if there are no faults and all balances are 0."""

    time: str
    events: int  # life events that were read
    queues: list[dict[str, Any]] = field(default_factory=list)
    publishes: dict[str, int] = field(default_factory=dict)
    fault_count: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)  # the first `faults_max`

    @property
    def is_clean(self) -> bool:
        return self.fault_count == 0 and not any(queue["balance"] for queue in self.queues)


def audit(
    spark: SparkSession, environment: Environment, request: AuditRequest, on_step: OnStep
) -> AuditResult:
    """Audit queues of a vhost in their present state."""
    snapshot = take_snapshot(environment, request.queues)
    count = sum(one.end - one.first for one in snapshot.chronicles)
    text = f"{len(snapshot.queues)} queues with {snapshot.copies():,} messages"
    on_step(AuditStep(f"{text}; reading {count:,} events of {len(snapshot.chronicles)} streams"))
    history, floors = read_history(spark, environment, snapshot, on_step)
    return audit_tables(spark, history, snapshot, floors, request, on_step)


def read_history(
    spark: SparkSession, environment: Environment, snapshot: Snapshot, on_step: OnStep
) -> tuple[DataFrame, dict[str, int]]:
    """Return the events of all chronicles up to the snapshot, and the first offset of each."""
    frames, floors = [], {}
    for one in snapshot.chronicles:
        given = environment.options(
            stream=one.name, startingOffsets=one.first, endingOffsets=one.end
        )
        schema = ", ".join(f"`{name}` {TYPES[name]}" for name in COLUMNS)
        frames.append(spark.read.format("leveret").options(**given).schema(schema).load())
        floors[one.name] = one.first
        older = _archived(spark, environment, one)
        if older is not None:
            frames.append(older[0])
            floors[one.name] = older[1]
            on_step(AuditStep(f"{one.name}: {one.first - older[1]:,} older events are in the lake"))
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole, floors


def _archived(
    spark: SparkSession, environment: Environment, one: Chronicle
) -> tuple[DataFrame, int] | None:
    """Return the events of a chronicle that only the lake has, and their first offset."""
    table = table_name(environment.vhost, one.name)
    if environment.lake_dir is None or one.first == 0:
        return None
    lake = Lake(environment.lake_path)
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
        raise PreconditionFailedError(f"{text}: archive it before retention deletes its events")
    return older.select(*COLUMNS), int(first)


def audit_tables(
    spark: SparkSession,
    history: DataFrame,
    snapshot: Snapshot,
    floors: dict[str, int],
    request: AuditRequest,
    on_step: OnStep,
) -> AuditResult:
    """Audit events that were already read against a snapshot."""
    steps = life_events(history).persist(StorageLevel.DISK_ONLY)
    before = spark.conf.get(_SHUFFLE)
    count = sum(one.end - floors[one.name] for one in snapshot.chronicles) + snapshot.copies()
    cores = spark.sparkContext.defaultParallelism
    spark.conf.set(_SHUFFLE, max(count // TASK_EVENTS, min(cores, count // 1000), 1))
    try:
        run = _Audit(spark, steps, snapshot, floors, request)
        on_step(AuditStep(f"read {run.events:,} events"))
        return run.result(on_step)
    finally:
        spark.conf.set(_SHUFFLE, before or "200")
        steps.unpersist()


class _Audit:
    """One audit: makes small tables of the known facts, then runs the transforms."""

    def __init__(
        self,
        spark: SparkSession,
        steps: DataFrame,
        snapshot: Snapshot,
        floors: dict[str, int],
        request: AuditRequest,
    ) -> None:
        self._spark = spark
        self._steps = steps
        self._snapshot = snapshot
        self._floors = floors
        self._request = request
        counts = copy_audit.count_events(steps).collect()
        self.events = sum(row.events for row in counts)
        arrivals = [row for row in counts if row.event == QUEUED]
        # A queue has two chronicles if a policy has changed: use its earliest event.
        self._arrivals = {row.id: row for row in sorted(arrivals, key=lambda row: -row.first)}
        self._publishes = [row for row in counts if row.event == PUBLISHED]
        cut = {name for name, floor in floors.items() if floor}
        starts: dict[str, int] = {}
        for row in counts:
            if row.stream in cut:
                starts[row.stream] = min(starts.get(row.stream, row.first_ms), row.first_ms)
        # The first millisecond of a chronicle that retention has cut is incomplete.
        self._whole_from_ms = max(starts.values(), default=-1) + 1

    def result(self, on_step: OnStep) -> AuditResult:
        snapshot, steps = self._snapshot, self._steps
        runs = self._table(list(snapshot.runs()), copy_audit.RUNS_SCHEMA)
        found = copy_audit.auditable_copies(
            copy_audit.copies(steps, copy_audit.present_copies(runs)),
            self._table(self._queues(), copy_audit.QUEUES_SCHEMA),
        )
        if not self._request.with_transient:
            found = copy_audit.without_lost_transient(found)
        found = found.persist(StorageLevel.DISK_ONLY)
        published = routing_audit.publishes(
            steps, self._chronicles(), self._remembering_queues()
        ).persist(StorageLevel.DISK_ONLY)
        try:
            queues = [row.asDict() for row in copy_audit.balance(found).collect()]
            on_step(AuditStep(f"added up {len(queues)} queues"))
            publishes = routing_audit.publish_balance(published).collect()[0].asDict()
            on_step(AuditStep(f"followed {publishes['published']:,} publishes"))
            time = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC).isoformat()
            done = AuditResult(time, self.events, queues, publishes)
            self._collect_faults(done, found, published)
            return done
        finally:
            found.unpersist()
            published.unpersist()

    def _collect_faults(self, done: AuditResult, found: DataFrame, published: DataFrame) -> None:
        request = self._request
        faults = copy_audit.copy_faults(found, self._snapshot.time_ms, request.stuck_after_s)
        faults = faults.unionByName(routing_audit.publish_faults(published))
        faults = faults.unionByName(
            routing_audit.dead_letter_faults(self._steps, self._dead_letter_targets())
        )
        if request.queues:
            faults = faults.where(f.col("queue").isin("", *request.queues))
        faults = faults.persist(StorageLevel.DISK_ONLY)
        try:
            done.fault_count = faults.count()
            if done.fault_count:
                told = copy_audit.with_events(faults.limit(request.faults_max), self._steps)
                done.faults = [row.asDict(recursive=True) for row in told.collect()]
        finally:
            faults.unpersist()

    def _table(self, rows: Sequence[tuple[object, ...]], schema: str) -> DataFrame:
        return self._spark.createDataFrame(list(rows), schema)

    def _queues(self) -> list[tuple[int, str, int, bool]]:
        """Return the queues to audit, each with its first auditable copy."""
        there = {queue.id: queue for queue in self._snapshot.queues}
        rows = [(one.id, one.name, self._floor(one), True) for one in there.values()]
        for id, row in self._arrivals.items():
            is_wanted = not self._request.queues or row.queue in self._request.queues
            if id not in there and is_wanted:
                rows.append((id, row.queue, row.first, False))
        return rows

    def _floor(self, queue: QueueSnapshot) -> int:
        """Return the number of the first copy whose events are all known."""
        if queue.is_declared and self._floors.get(queue.stream) == 0:
            return 0
        first = self._arrivals.get(queue.id)
        return first.first if first is not None else NEVER_FLOOR

    def _chronicles(self) -> DataFrame:
        rows = [(one.id, self._floors[one.name]) for one in self._snapshot.chronicles]
        return self._table(rows, routing_audit.CHRONICLES_SCHEMA)

    def _remembering_queues(self) -> DataFrame:
        return self._table(
            list(self._first_times().items()), routing_audit.REMEMBERING_QUEUES_SCHEMA
        )

    def _first_times(self) -> dict[str, int]:
        """Return the queues that exist and remember, with the time (ms) of their first event."""
        there = {queue.name for queue in self._snapshot.queues}
        found: dict[str, int] = {}
        for row in self._arrivals.values():
            if row.queue in there:
                found[row.queue] = min(found.get(row.queue, row.first_ms), row.first_ms)
        return found

    def _dead_letter_targets(self) -> DataFrame:
        """Return the places where dead letters must arrive, for queues whose target is certain."""
        times = self._first_times()
        rows: list[tuple[int, str | None, int]] = []
        exchanges = self._exchange_times()
        for queue in self._snapshot.queues:
            exchange, key = queue.dead_letter_exchange, queue.dead_letter_key
            if exchange == "" and key in times:
                rows.append((queue.id, key, max(times[key], self._whole_from_ms)))
            elif exchange in exchanges:
                rows.append((queue.id, None, max(exchanges[exchange], self._whole_from_ms)))
        return self._table(rows, routing_audit.DEAD_LETTER_TARGETS_SCHEMA)

    def _exchange_times(self) -> dict[str, int]:
        """Return the exchanges that remember, with the time (ms) of their first known publish."""
        streams = {one.name for one in self._snapshot.chronicles}
        names = {name for name, stream in self._snapshot.exchanges.items() if stream in streams}
        found: dict[str, int] = {}
        for row in self._publishes:
            if row.exchange in names:
                found[row.exchange] = min(found.get(row.exchange, row.first_ms), row.first_ms)
        return found
