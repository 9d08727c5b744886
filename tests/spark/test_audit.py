"""The audit: clean for a healthy broker, even under load; it reports every planted fault."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pika
import pytest
from pyspark.sql import SparkSession

from leveret.cli.pipeline.audit import FAULTS_FOUND, parse_age
from leveret.errors import ConfigError, PreconditionFailedError
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.audit import (
    AuditRequest,
    AuditResult,
    AuditStep,
    audit,
    audit_tables,
    read_history,
)
from leveret.pipeline.snapshot import Snapshot, take_snapshot
from tests.spark.lake import Served, serving
from tests.spark.test_flows_lake import archived, environment_of
from tests.spark.test_flows_messages import run
from tools.audit_million import LIVES, STUCK_AFTER_S, Tables, plant_faults, traffic
from tools.chaos.judging import judge_by
from tools.chaos.run import run as run_chaos

MESSAGES = 500  # `make audit-million` uses more
WITHIN_S = 120.0


def quiet(step: object) -> None:
    """Ignore progress."""


def audit_snapshot(
    spark: SparkSession, environment: Environment, snapshot: Snapshot
) -> AuditResult:
    history, floors = read_history(spark, environment, snapshot, quiet)
    return audit_tables(spark, history, snapshot, floors, AuditRequest(), quiet)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A broker after publishes, retries, dead letters and replays."""
    folder = tmp_path_factory.mktemp("shop")
    with serving(folder / "data") as served:
        environment = Environment(served.http, lake_dir=str(folder / "lake"))
        traffic(spark, environment, pika.URLParameters(served.server.url), MESSAGES)
        yield environment


def test_a_healthy_run_is_accounted_for(spark: SparkSession, shop: Environment) -> None:
    found = audit(spark, shop, AuditRequest(), quiet)
    assert found.is_clean, found.faults
    queues = {queue["queue"]: queue for queue in found.queues}
    dead, replayed = queues["dead"], queues["work"]["replayed"]
    assert dead["queued"] == dead["ready"] == MESSAGES // 10 + MESSAGES // 50
    assert 0 < replayed < dead["queued"]
    work = queues["work"]
    assert (work["queued"], work["acked"]) == (MESSAGES + replayed, MESSAGES * 7 // 10)
    assert (work["dead_lettered"], work["unacked"]) == (MESSAGES // 10, MESSAGES // 100)
    assert found.publishes["published"] == MESSAGES + MESSAGES // 10 + replayed
    assert found.publishes["balance"] == 0


def test_every_planted_fault_is_reported_and_no_other(
    spark: SparkSession, shop: Environment
) -> None:
    snapshot = take_snapshot(shop)
    history, floors = read_history(spark, shop, snapshot, quiet)
    tables = Tables(spark, history, snapshot)
    plant_faults(tables)
    asked = AuditRequest(stuck_after_s=STUCK_AFTER_S)
    found = audit_tables(spark, tables.changed(), tables.snapshot, floors, asked, quiet)
    named = {(fault["kind"], fault["broker_id"]) for fault in found.faults}
    assert named == tables.expected
    assert len(named) == found.fault_count == 12
    assert not found.is_clean
    lost = next(one for one in found.faults if one["broker_id"] == tables.acked[0])
    assert lost["message_id"].startswith("m-")
    events = [seen["event"] for seen in lost["events"] if seen["number"] == lost["broker_id"]]
    assert events == ["queued", "delivered"]


def test_events_deleted_by_retention_are_read_from_the_lake(
    spark: SparkSession, shop: Environment
) -> None:
    archived(spark, shop, LIVES)
    snapshot = take_snapshot(shop)
    (lives,) = snapshot.chronicles
    short = replace(snapshot, chronicles=(replace(lives, first=lives.end // 2),))
    whole = audit_snapshot(spark, shop, short)
    assert whole.is_clean, whole.faults
    assert whole.events == lives.end
    half = audit_snapshot(spark, replace(shop, lake_dir=None), short)
    assert half.is_clean, half.faults
    assert half.events == lives.end - lives.end // 2
    ahead = replace(snapshot, chronicles=(replace(lives, first=lives.end + 1, end=lives.end + 1),))
    with pytest.raises(
        PreconditionFailedError, match="1 events of 'lives' are neither at the broker"
    ):
        read_history(spark, shop, ahead, quiet)


def test_command_prints_the_result(spark: SparkSession, shop: Environment) -> None:
    from typer.testing import CliRunner

    from leveret.cli.app import make_app

    words = ["pipeline", "audit", "--url", shop.url, "--queue", "dead", "--queue", "side"]
    done = CliRunner().invoke(make_app("pipeline"), words)
    assert done.exit_code == 0, done.output
    assert "every message is accounted for" in done.stdout
    done = run(shop, "audit", "--queue", "dead", "--stuck-after", "0.001s", "--limit", "2")
    assert done.exit_code == FAULTS_FOUND, done.output
    found = json.loads(done.stdout)
    assert [queue["queue"] for queue in found["queues"]] == ["dead"]
    assert found["fault_count"] == found["queues"][0]["ready"] > 2
    assert {fault["kind"] for fault in found["faults"]} == {"stuck"}
    assert run(shop, "audit", "--queue", "nothing").exit_code == 1


def test_ages_have_units() -> None:
    assert [parse_age(text) for text in ("90", "90s", "1.5m", "2h", "1d")] == [
        90,
        90,
        90,
        7200,
        86400,
    ]
    with pytest.raises(ConfigError):
        parse_age("soon")


class Traffic:
    """A thread that publishes, acks, rejects and requeues as fast as possible until stopped."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._stopping, self._moved = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_more(self) -> None:
        """Wait for a whole round; the first one that ends may have no more commands to send."""
        for _ in range(2):
            self._moved.clear()
            assert self._moved.wait(WITHIN_S)

    def _work(self) -> None:
        with self._served.channel() as opened:
            number = 0
            while not self._stopping.is_set():
                for _ in range(20):
                    body = str(number).encode()
                    opened.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
                    number += 1
                for _ in range(18):
                    method, _, _ = opened.basic_get("q")
                    _settle(opened, method.delivery_tag)
                self._moved.set()


def _settle(opened: Any, tag: int) -> None:
    if tag % 3 == 0:
        opened.basic_ack(tag)
    else:
        opened.basic_nack(tag, requeue=tag % 3 == 1)


def test_traffic_makes_no_false_alarm(spark: SparkSession, served: Served) -> None:
    remember = {"x-remember": LIVES}
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    with served.channel() as opened:
        opened.queue_declare("dead", durable=True, arguments=remember)
        opened.queue_declare("q", durable=True, arguments={**remember, **to_dead})
    environment = Environment(served.http)
    late: list[Snapshot] = []

    def on_step(_: AuditStep) -> None:
        """Go on for a while after the snapshot of the audit, before its events are read."""
        if not late:
            load.wait_for_more()
            late.append(take_snapshot(environment))
            load.stop()

    with Traffic(served) as load:
        load.wait_for_more()
        early = take_snapshot(environment)
        load.wait_for_more()
        found = audit(spark, environment, AuditRequest(), on_step)
    assert found.is_clean, found.faults
    assert early.chronicles[0].end < found.events < late[0].chronicles[0].end
    # An inconsistent snapshot: the queues of before with the events up to now.
    torn = audit_snapshot(spark, environment, replace(early, chronicles=late[0].chronicles))
    assert torn.fault_count > 0


def test_every_way_to_end_is_accounted_for(spark: SparkSession, served: Served) -> None:
    def declare(name: str, **more: object) -> None:
        arguments = {f"x-{key.replace('_', '-')}": value for key, value in more.items()}
        opened.queue_declare(name, durable=True, arguments={"x-remember": LIVES, **arguments})

    def fill(name: str, count: int, **headers: int) -> None:
        for _ in range(count):
            opened.basic_publish("", name, b"x", pika.BasicProperties(headers=dict(headers)))

    with served.channel() as opened, served.channel() as other:
        declare("short", max_length=2)
        fill("short", 5)
        declare("brief", message_ttl=0)
        fill("brief", 3)
        declare("parking", delivery_limit=0)
        fill("parking", 1)
        opened.basic_reject(opened.basic_get("parking")[0].delivery_tag)
        declare("later", delayed=True)
        fill("later", 2, **{"x-delay": 1})
        fill("later", 1, **{"x-delay": 3_600_000})
        while served.count("later") < 2:
            pass
        declare("purged")
        fill("purged", 4)
        opened.queue_purge("purged")
        declare("deleted")
        fill("deleted", 3)
        other.basic_get("deleted")
        opened.queue_delete("deleted")
        declare("deleted")
        fill("deleted", 1)
        opened.basic_get("deleted", auto_ack=True)
        found = audit(spark, Environment(served.http), AuditRequest(), quiet)
    assert found.is_clean, found.faults
    told = {
        queue["queue"]: {name: n for name, n in queue.items() if n and name != "queue"}
        for queue in found.queues
    }
    assert told == {
        "short": {"queued": 5, "dropped": 3, "ready": 2},
        "brief": {"queued": 3, "expired": 3},
        "parking": {"queued": 1, "parked": 1},
        "later": {"queued": 3, "ready": 2, "scheduled": 1},
        "purged": {"queued": 4, "purged": 4},
        "deleted": {"queued": 4, "deleted": 2, "unacked": 1, "acked": 1},
    }


def test_restart_loses_only_transient_messages(spark: SparkSession, tmp_path: Path) -> None:
    kept = pika.BasicProperties(delivery_mode=2)
    with serving(tmp_path / "data") as served, served.channel() as opened:
        opened.queue_declare("q", durable=True, arguments={"x-remember": LIVES})
        for properties in (kept, kept, None, None, None):
            opened.basic_publish("", "q", b"x", properties)
    with serving(tmp_path / "data") as served, served.channel() as opened:
        assert served.count("q") == 2
        opened.basic_publish("", "q", b"takes a number that was lost", kept)
        environment = environment_of(served, tmp_path)
        found = audit(spark, environment, AuditRequest(), quiet)
        assert {fault["kind"] for fault in found.faults} == {"lost"}
        assert all(fault["what"].endswith("; it was transient") for fault in found.faults)
        assert not found.is_clean
        without = audit(spark, environment, AuditRequest(with_transient=False), quiet)
        assert without.is_clean, without.faults
        assert without.queues[0]["ready"] in (2, 3)


def test_kills_under_load_leave_every_message_accounted_for(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    with (tmp_path / "log").open("w") as log:
        outcome = run_chaos(tmp_path / "data", 4, seed, log, judge_by(spark))
    assert outcome.faults == []
    assert outcome.kills >= 4
