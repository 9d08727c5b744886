"""`jobs-report` over shards and over HTTP, and `load --jobs`: real stores, counted by the test."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.clock import Clock
from leveret.jobs import Client, NewJob, TopicSettings
from leveret.pipeline.flows.jobs_report import report_over_http
from leveret.pipeline.flows.load_jobs import JobsTarget, Loaded, enqueue_rows, load_jobs
from leveret.pipeline.transforms.table_rows import rows_as_jobs
from tests.jobs.service import token
from tests.jobs.stores import ShardsService
from tests.spark.lake import Served
from tests.spark.test_flows_lake import environment_of
from tools.services import shared_postgres, shared_redis

APP = make_app("")


LATER_MS = 3_600_000
DAY_S = 86_400


def client_of(served: Served, namespace: str = "shop") -> Client:
    return Client(
        f"http://127.0.0.1:{served.server.http_port}",
        token=token(served.server),
        namespace=namespace,
    )


def hour_of(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:00:00")


def fail(client: Client, topic: str, *errors: str) -> None:
    """Take a job for each error, and give it back with that."""
    for error in errors:
        (job,) = client.dequeue(topic, wait_s=60)
        client.nack(job, error)


def fill(client: Client, pass_time: Any) -> None:
    """Twelve emails of which two are dead; five bills, of which one is with a worker."""
    client.set_settings("email", TopicSettings(retries_max=0))
    jobs = [NewJob(topic="email", payload=n) for n in range(12)]
    client.enqueue_many(jobs)
    fail(client, "email", "SMTPError: refused\nby 10.0.0.1", "SMTPError: refused\nby 10.0.0.2")
    pass_time(LATER_MS / 1000)
    client.enqueue_many([NewJob(topic="bill", payload=n) for n in range(5)])
    fail(client, "bill", "no printer")
    (held,) = client.dequeue("bill", wait_s=60, lease_s=600)
    assert held.attempt == 1
    pass_time(10)
    client.stats()  # has everything flushed


EXPECTED = {
    "bill": {"ready": 4, "scheduled": 0, "leased": 1, "dead": 0, "failures": 1},
    "email": {"ready": 10, "scheduled": 0, "leased": 0, "dead": 2, "failures": 2},
}


def test_jobs_of_all_shards_are_told_by_topic_state_error_and_hour(
    spark: SparkSession, tmp_path: Path
) -> None:
    page = tmp_path / "jobs.html"
    with shared_postgres().databases(3) as dsns:
        given = {"jobs_redis": shared_redis().fresh_url(), "jobs_postgres": " ".join(dsns)}
        service = ShardsService(tmp_path / "data", **given)
        service.start()
        try:
            start = service.now_ms()
            word = service.token("shop", "other", lasts_s=DAY_S)
            url = f"http://127.0.0.1:{service.port}"
            with Client(url, token=word, namespace="shop") as client:
                # Nothing wakes what falls due: a report must see by itself that it is ready.
                fill(client, lambda seconds: service.clock.advance(seconds=seconds))
                client.enqueue("x", b"", namespace="other")
                client.stats()
            words = [word for dsn in dsns for word in ("--jobs-postgres", dsn)]
            done = CliRunner().invoke(
                APP,
                ["pipeline", "jobs-report", *words, "-n", "shop", "--json", "--html", str(page)],
            )
        finally:
            service.stop()
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    topics = {row["topic"]: row for row in found["topics"]}
    assert {name: {key: topics[name][key] for key in row} for name, row in EXPECTED.items()} == (
        EXPECTED
    )
    # All jobs of a batch became ready at the same time, whose age the report knows.
    assert topics["email"]["oldest_ready"].startswith(hour_of(start)[:13])
    ages = [topics[name]["oldest_ready_s"] for name in ("email", "bill")]
    assert round(ages[0] - ages[1]) == LATER_MS // 1000
    assert [(row["error"], row["jobs"]) for row in found["errors"]] == [("SMTPError: refused", 2)]
    assert set(topics) == {"email", "bill"} and found["ready"] == 14
    hours = [(r["hour"], r["topic"], r["came"], r["failed"]) for r in found["hours"]]
    assert hours == [(hour_of(start), "email", 12, 2), (hour_of(start + LATER_MS), "bill", 5, 1)]
    assert "shop/email" in page.read_text() and "SMTPError: refused" in page.read_text()


def test_jobs_of_the_broker_itself_are_told_over_http(served: Served, tmp_path: Path) -> None:
    with client_of(served) as client:
        fill(client, lambda seconds: None)
        now = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC)
        found = report_over_http(client, "shop", 10, now)
    topics = {row["topic"]: row for row in found["topics"]}
    assert topics["email"]["ready"] == 10 and topics["bill"]["leased"] == 1
    assert (found["dead"], topics["email"]["dead"], topics["email"]["enqueued"]) == (2, 2, 12)
    assert [(row["error"], row["jobs"]) for row in found["errors"]] == [("SMTPError: refused", 2)]
    done = CliRunner().invoke(APP, ["pipeline", "jobs-report", "--url", served.http])
    assert done.exit_code == 0, done.output
    assert "SMTPError: refused" in done.stdout


def payloads(client: Client, topic: str, count: int) -> list[Any]:
    """All jobs of a topic, taken, in their order; there are no more than these."""
    found: list[Any] = []
    while len(found) < count:
        jobs = client.dequeue(topic, limit=500, wait_s=60)
        found += [job.json() for job in jobs]
    assert client.dequeue(topic) == []
    return found


def test_repeated_load_of_files_adds_jobs_once(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "sub" / "a.csv"
    second.parent.mkdir()
    first.write_text("id\n" + "".join(f"{n}\n" for n in range(1_500)))
    second.write_text("id\n1500\n1501\n")
    to = JobsTarget(environment_of(served, tmp_path), "shop", "import", rate=100_000)
    files = [first, second]
    assert load_jobs(spark, files, None, to, "monday") == Loaded(new=1_502, known=0)
    words = ["load", *map(str, files), "--jobs", "shop/import", "--id", "monday"]
    again = CliRunner().invoke(APP, ["pipeline", *words, "--url", served.http, "--json"])
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout) == {"jobs": 0, "known": 1_502, "id": "monday"}
    first.write_text(first.read_text() + "1502\n")
    more = CliRunner().invoke(APP, ["pipeline", *words, "--url", served.http])
    assert more.stdout == "enqueued 1 job; 1,502 already existed\n"
    with client_of(served) as client:
        assert [job["id"] for job in payloads(client, "import", 1_503)] == [
            str(n) for n in range(1_503)
        ]
        # Another load id adds the same rows again.
        load_jobs(spark, [second], None, to, "tuesday")
        assert [job["id"] for job in payloads(client, "import", 2)] == ["1500", "1501"]


def failing_once(frame: DataFrame, marker: Path) -> DataFrame:
    """A load whose task fails once, when most rows are sent."""

    def check(key: str) -> str:
        if key.endswith("/2200") and not marker.exists():
            marker.touch()
            raise OSError("the executor is lost")
        return key

    return frame.withColumn("key", f.udf(check, "string", useArrow=False)("key"))


def test_a_task_that_fails_adds_nothing_twice(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    rows = spark.range(2_500).coalesce(1).withColumnRenamed("id", "body")
    frame = rows.selectExpr("cast(body as string) as body", "cast(body % 2 as int) as priority")
    marker = tmp_path / "failed"
    to = JobsTarget(environment_of(served, tmp_path), "shop", "import", token(served.server))
    enqueue_rows(failing_once(rows_as_jobs(frame, "load/x"), marker), to)
    assert marker.exists()
    with client_of(served) as client:
        found = payloads(client, "import", 2_500)
    # Lower priorities are more urgent; nothing is missing, nothing came twice.
    assert found == [*range(0, 2_500, 2), *range(1, 2_500, 2)]


def test_refusal_of_the_service_is_one_line(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    rows = tmp_path / "a.csv"
    rows.write_text("id\n1\n")
    given = ["--jobs", "shop/import", "--token", "nonsense", "--url", served.http]
    done = CliRunner().invoke(APP, ["pipeline", "load", str(rows), *given])
    assert done.exit_code == 1
    assert "token" in done.stderr and done.stderr.count("\n") == 1
