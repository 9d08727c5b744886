"""Audit a million messages after publishes, retries, dead letters and replays.

`make audit-million`. One broker, whose queues and exchanges all remember in one stream:

    orders ──► work (all)  ──rejected──► failed ──► dead ──replayed──► orders
          └──► side (some) ──rejected────────────► dead

Some messages of `work` are requeued, some rejected, most acked, and the rest stays. Half of the
dead letters are replayed. The audit must find a balance of 0. Then `plant_faults` changes the
tables that the audit reads: it must report each planted fault, and no other.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pika
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.audit import (
    AuditRequest,
    AuditResult,
    audit,
    audit_tables,
    read_history,
)
from leveret.pipeline.flows.replay import Selection, Target, replay, select_messages
from leveret.pipeline.session import spark_session
from leveret.pipeline.snapshot import Run, Snapshot, take_snapshot
from leveret.pipeline.transforms.life_events import SEQ_BITS, life_events
from leveret.wire.properties import Properties, encode_header
from pyspark_leveret.client import Broker
from pyspark_leveret.options import parse_options
from pyspark_leveret.publisher import publish
from tools.server import Server

LIVES: Final = "lives"
EPOCH: Final = 100_000
REJECTED_AT_ONCE: Final = 100
BODY: Final = b"x" * 100
STUCK_AFTER_S: Final = 86_400.0

Expected = set[tuple[str, int]]  # kind and broker id


def declare(channel: Any) -> None:
    """Declare the queues and exchanges of the drawing above."""
    remember = {"x-remember": LIVES}
    channel.exchange_declare("orders", "topic", durable=True, arguments=remember)
    channel.exchange_declare("failed", "fanout", durable=True, arguments=remember)
    to_failed = {**remember, "x-dead-letter-exchange": "failed"}
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("work", durable=True, arguments=to_failed)
    channel.queue_declare("side", durable=True, arguments={**remember, **to_dead})
    channel.queue_declare("dead", durable=True, arguments=remember)
    channel.queue_bind("work", "orders", "#")
    channel.queue_bind("side", "orders", "orders.0")
    channel.queue_bind("dead", "failed")


def messages(count: int) -> Iterator[tuple[str, str, bytes, bytes]]:
    """Return messages with unique ids and ten routing keys."""
    for number in range(count):
        properties = Properties()
        properties.delivery_mode = 2
        properties.message_id = f"m-{number}"
        yield "orders", f"orders.{number % 10}", encode_header(properties, len(BODY)), BODY


def traffic(spark: SparkSession, environment: Environment, amqp: Any, count: int) -> None:
    """Publish, requeue, reject, ack and replay; leave some messages ready and in flight."""
    amqp.heartbeat = 0  # the connection is not served during other steps
    connection = pika.BlockingConnection(amqp)
    channel = connection.channel()
    declare(channel)
    publish(parse_options(environment.options()), "audit", messages(count))
    _take(environment, "work", "retry", count // 5)
    _lease(environment, "DELETE", "work", "retry")
    _reject(channel, "work", count // 10)
    _reject(channel, "side", count // 50)
    _take(environment, "work", "done", count * 7 // 10, acks=True)
    is_dead = "headers['x-event'] = 'queued' and headers['x-queue'] = 'dead'"
    frame = select_messages(
        spark, environment, Selection(LIVES, where=f"{is_dead} and crc32(message_id) % 2 = 0")
    )
    replay(frame, environment, Target(exchange="orders"), "again")
    _take(environment, "work", "held", count // 100)
    connection.close()


def _lease(environment: Environment, method: str, queue: str, *rest: str, **query: object) -> Any:
    broker = Broker(parse_options(environment.options()))
    return broker.ask(method, broker.path("queues", queue, "leases", *rest), None, **query)


def _take(
    environment: Environment, queue: str, reader: str, count: int, *, acks: bool = False
) -> None:
    """Take messages for a reader, in epochs; ack each epoch, or hold it."""
    epoch = 0
    while count > 0:
        epoch += 1
        wanted = min(count, EPOCH)
        found = _lease(
            environment, "POST", queue, reader, str(epoch), count=wanted, max_bytes=200 << 20
        )
        count -= found["messages"]
        if acks:
            _lease(environment, "POST", queue, reader, "ack", upto=epoch)


def _reject(channel: Any, queue: str, count: int) -> None:
    channel.basic_qos(prefetch_count=REJECTED_AT_ONCE)
    for number, (method, _, _) in enumerate(channel.consume(queue), 1):
        if number % REJECTED_AT_ONCE == 0 or number == count:
            channel.basic_nack(method.delivery_tag, multiple=True, requeue=False)
        if number == count:
            break
    channel.cancel()


class Tables:
    """The tables that the audit reads, changes to them, and the faults it must then find."""

    def __init__(self, spark: SparkSession, history: DataFrame, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.expected: Expected = set()
        self._spark = spark
        self._history = history
        self._steps = life_events(history).persist(StorageLevel.DISK_ONLY)
        self._gone: list[int] = []  # offsets of events to remove
        self._more: list[tuple[int, dict[str, str]]] = []  # offsets and headers of events to repeat
        self.acked, self.died = self._victims("acked", 7), self._victims("dead-lettered", 2)
        wanted = [*self.acked, *self.died]
        arrivals = self._rows(f.col("cause_id").isin(*self.died))
        brought = [row.number for row in arrivals]
        self.rows = arrivals + self._rows(f.col("number").isin(*wanted, *brought))

    def _victims(self, event: str, count: int) -> list[int]:
        """Return copies of `work` with one such event; acked ones were delivered once."""
        lived = self._steps.where(f.col("queue") == "work").groupBy("number")
        plain = lived.agg(
            f.count_if(f.col("event") == event).alias("found"),
            f.count_if(f.col("event") == "delivered").alias("delivered"),
        ).where("found = 1" if event != "acked" else "found = 1 and delivered = 1")
        return [row.number for row in plain.orderBy(f.desc("number")).limit(count).collect()]

    def _rows(self, condition: Any) -> list[Any]:
        return self._steps.where(condition).collect()

    def find(self, event: str, **wanted: int) -> Any:
        """Return the event of a copy or publish."""
        for row in self.rows:
            if row.event == event and all(row[name] == value for name, value in wanted.items()):
                return row
        raise LookupError(f"no event {event} of {wanted}")

    def remove(self, event: str | None, number: int) -> None:
        """Remove one event of a copy or publish, or all of them."""
        for row in self.rows:
            if row.number == number and event in (None, row.event):
                self._gone.append(row.offset)

    def add(self, event: str, number: int, **headers: str) -> None:
        """Repeat an event at the end of the stream."""
        self._more.append((self.find(event, number=number).offset, headers))

    def set_runs(self, queue: str, change: Callable[[list[Run]], list[Run]]) -> None:
        """Change the messages of a queue in the snapshot."""
        queues = [
            replace(one, runs=tuple(change(list(one.runs)))) if one.name == queue else one
            for one in self.snapshot.queues
        ]
        self.snapshot = replace(self.snapshot, queues=tuple(queues))

    def changed(self) -> DataFrame:
        """Return the changed stream of life events."""
        self._steps.unpersist()
        offsets = [offset for offset, _ in self._more]
        found = self._history.where(f.col("offset").isin(*offsets)).collect()
        rows = {row.offset: row.asDict(recursive=True) for row in found}
        end = max(one.end for one in self.snapshot.chronicles)
        more = []
        for number, (offset, headers) in enumerate(self._more, end):
            row = rows[offset]
            more.append({**row, "offset": number, "headers": {**row["headers"], **headers}})
        kept = self._history.where(~f.col("offset").isin(*self._gone))
        return kept.unionByName(self._spark.createDataFrame(more, self._history.schema))


def plant_faults(tables: Tables) -> None:
    """Plant twelve faults of all kinds."""
    _plant_ends(tables)
    _plant_states(tables, tables.acked[4])
    _plant_routes(tables)


def _plant_ends(tables: Tables) -> None:
    """Plant acks that are missing, doubled, without a delivery, or of another queue."""
    lost, twice, undelivered, misplaced = tables.acked[:4]
    tables.remove("acked", lost)
    tables.add("acked", twice)
    tables.remove("delivered", undelivered)
    tables.add("acked", misplaced, **{"x-queue": "side"})
    tables.remove("acked", misplaced)
    tables.expected |= {("lost", lost), ("duplicated", twice)}
    tables.expected |= {("invented", undelivered), ("invented", misplaced)}


def _plant_states(tables: Tables, acked: int) -> None:
    """Plant messages in a queue that are missing, ended, never came, or are held too long."""
    work = next(queue for queue in tables.snapshot.queues if queue.name == "work")
    base = work.id << SEQ_BITS
    ready = max((run for run in work.runs if run[1] == "ready"), key=lambda run: run[3] - run[2])
    held = next(run for run in work.runs if run[1] == "unacked")
    long_ago_ms = tables.snapshot.time_ms - int(2000 * STUCK_AFTER_S)

    def change(runs: list[Run]) -> list[Run]:
        others = [run for run in runs if run not in (ready, held)]
        return [
            *others,
            (work.id, "ready", ready[2], ready[3] - 1, None),
            (work.id, "unacked", held[2] + 1, held[3], held[4]),
            (work.id, "unacked", held[2], held[2], long_ago_ms),
            (work.id, "ready", acked - base, acked - base, None),
            (work.id, "ready", 1 << 39, 1 << 39, None),
        ]

    tables.set_runs("work", change)
    tables.expected |= {
        ("lost", base + ready[3]),
        ("stuck", base + held[2]),
        ("duplicated", acked),
        ("invented", base + (1 << 39)),
    }


def _plant_routes(tables: Tables) -> None:
    """Plant messages that were routed and did not come, came twice, or vanished as dead letters."""
    missing, twice = tables.acked[5:7]
    tables.remove(None, missing)
    tables.expected.add(("lost", tables.find("queued", number=missing).publish_id))
    tables.add("queued", twice)
    tables.expected.add(("duplicated", twice))
    vanished, unrouted = tables.died
    dead = next(queue for queue in tables.snapshot.queues if queue.name == "dead")
    copy = tables.find("queued", cause_id=vanished)
    tables.remove(None, copy.number)
    tables.remove(None, copy.publish_id)
    tables.set_runs("dead", lambda runs: without(runs, copy.number - (dead.id << SEQ_BITS)))
    tables.expected.add(("lost", vanished))
    publish = tables.find("published", cause_id=unrouted).number
    tables.remove("routed", publish)
    tables.expected.add(("lost", publish))


def without(runs: list[Run], seq: int) -> list[Run]:
    """Return runs without one number."""
    found: list[Run] = []
    for id, state, first, last, since in runs:
        if not first <= seq <= last:
            found.append((id, state, first, last, since))
            continue
        parts = ((first, seq - 1), (seq + 1, last))
        found += [(id, state, low, high, since) for low, high in parts if low <= high]
    return found


def run(spark: SparkSession, folder: Path, count: int) -> None:
    """Run traffic and audits; raise AssertionError if an audit is wrong."""
    with (folder / "broker.log").open("w") as log:
        server = Server(folder / "data", log)
        server.start()
        try:
            environment = Environment(f"http://guest:guest@127.0.0.1:{server.http_port}")
            amqp = pika.URLParameters(f"amqp://127.0.0.1:{server.port}/")
            timed("traffic", lambda: traffic(spark, environment, amqp, count))
            found: AuditResult = timed(
                "audit", lambda: audit(spark, environment, AuditRequest(), _tell)
            )
            print(f"{found.events:,} events, {found.fault_count} faults")
            for queue in found.queues:
                print({name: value for name, value in queue.items() if value or name == "balance"})
            print(found.publishes)
            assert found.is_clean, found.faults[:3]
            _plant_and_find(spark, environment)
        finally:
            server.kill()


def _plant_and_find(spark: SparkSession, environment: Environment) -> None:
    snapshot = take_snapshot(environment)
    history, floors = read_history(spark, environment, snapshot, _tell)
    tables = Tables(spark, history, snapshot)
    timed("planting", lambda: plant_faults(tables))
    request = AuditRequest(stuck_after_s=STUCK_AFTER_S)
    found: AuditResult = timed(
        "audit of faults",
        lambda: audit_tables(spark, tables.changed(), tables.snapshot, floors, request, _tell),
    )
    named = {(fault["kind"], fault["broker_id"]) for fault in found.faults}
    for fault in found.faults:
        print(fault["kind"], fault["broker_id"], fault["message_id"], fault["what"])
    assert named == tables.expected, (named ^ tables.expected, found.fault_count)
    print(f"all {len(named)} planted faults were reported, and no other")


def _tell(step: Any) -> None:
    print(f"    {step.line()}", flush=True)


def timed(what: str, work: Callable[[], Any]) -> Any:
    started_s = time.monotonic()
    done = work()
    print(f"{what}: {time.monotonic() - started_s:.1f} s", flush=True)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    given = parser.parse_args()
    session = spark_session("audit", master="local[2]")
    session.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory(prefix="leveret-audit-") as folder:
        run(session, Path(folder), given.messages)
    session.stop()


if __name__ == "__main__":
    main()
