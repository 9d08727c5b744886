"""`latency`: durations that the test makes by moving the broker's clock."""

from pathlib import Path

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.pipeline.flows.latency import LatencyRequest, read_durations, report
from tests.spark.test_flows_lake import archived, environment_of
from tests.spark.timed import Timed, timed

APP = make_app("")


HOUR_S = 3600


def live(served: Timed) -> dict[str, list[int]]:
    """Messages with known lives: the milliseconds of each kind of span of the queue `work`."""
    known: dict[str, list[int]] = {"waiting": [], "in flight": [], "to ack": []}
    with served.channel() as opened:
        for name in ("work", "other"):
            opened.queue_declare(name, durable=True, arguments={"x-remember": "lives"})
        for number in range(40):
            waiting_ms, flight_ms = 10 * number, 3 * number
            served.put(opened, "", "work", app_id="even" if number % 2 == 0 else None)
            served.clock.advance(waiting_ms / 1000)
            tag = opened.basic_get("work")[0].delivery_tag
            served.clock.advance(flight_ms / 1000)
            opened.basic_ack(tag)
            served.wait_for("work")
            known["waiting"].append(waiting_ms)
            known["in flight"].append(flight_ms)
            known["to ack"].append(waiting_ms + flight_ms)
        served.clock.advance(seconds=HOUR_S)
        # Comes back once: two waits, two flights, one ack.
        served.put(opened, "", "work")
        for waiting_ms, flight_ms in ((5_000, 7_000), (11_000, 13_000)):
            served.clock.advance(waiting_ms / 1000)
            tag = opened.basic_get("work")[0].delivery_tag
            served.clock.advance(flight_ms / 1000)
            if waiting_ms == 5_000:
                opened.basic_nack(tag, requeue=True)
            else:
                opened.basic_ack(tag)
            served.wait_for("work")
            known["waiting"].append(waiting_ms)
            known["in flight"].append(flight_ms)
        known["to ack"].append(36_000)
        # Two settled by one event of a range of copies, and one that is never delivered.
        for _ in range(3):
            served.put(opened, "", "other")
        served.clock.advance(1)
        tags = [opened.basic_get("other")[0].delivery_tag for _ in range(3)]
        served.clock.advance(1)
        opened.basic_ack(tags[-1], multiple=True)
        served.put(opened, "", "other")
        served.wait_for("other")
    return known


def share(values: list[int], portion: float) -> int:
    """The nearest rank."""
    ordered = sorted(values)
    return ordered[max(-(-int(portion * 100) * len(ordered) // 100), 1) - 1]


def test_percentiles_of_waiting_flight_and_ack(spark: SparkSession, tmp_path: Path) -> None:
    with timed(tmp_path / "data") as served:
        known = live(served)
        environment = environment_of(served, tmp_path)
        asked = LatencyRequest("lives", HOUR_S)
        found = report(read_durations(spark, environment, asked), HOUR_S)
        archived(spark, environment, "lives")
        last = LatencyRequest("lives", HOUR_S, True, queue="work", since=served.hour())
        late = read_durations(spark, environment, last).collect()
    rows = {(row["queue"], row["kind"]): row for row in found["queues"]}
    for kind, values in known.items():
        row = rows["work", kind]
        assert row["count"] == len(values)
        expected = [share(values, portion) for portion in (0.5, 0.95, 0.99)]
        assert [row[name] for name in ("p50", "p95", "p99")] == expected
        assert row["max"] == max(values)
    assert [rows["other", kind]["p50"] for kind in known] == [1_000, 1_000, 2_000]
    assert [rows["other", kind]["count"] for kind in known] == [3, 3, 3]
    even = {row["kind"]: row for row in found["services"]}
    assert {row["service"] for row in found["services"]} == {"even"}
    assert even["to ack"]["count"] == 20
    assert even["to ack"]["p50"] == share(known["to ack"][0:40:2], 0.5)
    # The message that came back is in the second hour, and there alone.
    windows = [row for row in found["windows"] if (row["queue"], row["kind"]) == ("work", "to ack")]
    assert [(row["count"], row["max"]) for row in windows] == [(40, 507), (1, 36_000)]
    assert sorted((row.kind, row.ms) for row in late) == [
        ("in flight", 7_000),
        ("in flight", 13_000),
        ("to ack", 36_000),
        ("waiting", 5_000),
        ("waiting", 11_000),
    ]


def test_the_command_finds_the_stream_of_a_queue_and_draws(
    spark: SparkSession, tmp_path: Path
) -> None:
    page = tmp_path / "latency.html"
    with timed(tmp_path / "data") as served:
        known = live(served)["to ack"]
        given = ["--queue", "work", "--window", "30m", "--url", served.http, "--html", str(page)]
        done = CliRunner().invoke(APP, ["pipeline", "latency", *given])
        wrong = CliRunner().invoke(APP, ["pipeline", "latency", "lives", "--window", "soon"])
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    (told,) = [line for line in lines if line[:3] == ["work", "to", "ack"]]
    shares = [f"{share(known, portion)}.0" for portion in (0.5, 0.95, 0.99, 1)]
    assert told[3:] == [str(len(known)), *shares]
    assert "other" not in done.stdout
    assert "work: time in queue" in page.read_text()
    assert wrong.exit_code == 1 and "5m" in wrong.stderr
