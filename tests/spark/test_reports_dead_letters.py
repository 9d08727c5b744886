"""`deadletters`: the report agrees with rejections, expiries and bus failures of the test."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from leveret.bus import Bus, topic
from leveret.cli.app import make_app
from leveret.pipeline.flows.deadletters import (
    Sources,
    dead_letter_queues,
    read_dead_letters,
    report,
)
from leveret.pipeline.transforms.dead_letters import COUNT_MAX, by_dimension, dead_letters
from leveret.pipeline.transforms.latency import durations, queue_events
from tests.bus.stage import FAST, Placed, channel, take
from tests.spark.lake import Served
from tests.spark.test_flows_lake import archived, environment_of
from tests.spark.test_flows_transforms import messages
from tests.spark.timed import Timed, timed

APP = make_app("pipeline")


BUS_WITHIN_S = 180
HOSTILE = "<img src=x onerror=alert(1)>"


def declare(opened: Any) -> None:
    """`orders` by rejection, `mail` by expiry, into a queue and a stream."""
    opened.exchange_declare("dead", "fanout", durable=True)
    opened.queue_declare("dead", durable=True)
    opened.queue_declare("dead.log", durable=True, arguments={"x-queue-type": "stream"})
    for name in ("dead", "dead.log"):
        opened.queue_bind(name, "dead")
    remembers = {"x-dead-letter-exchange": "dead", "x-remember": "lives"}
    opened.queue_declare("orders", durable=True, arguments=remembers)
    short = {"x-dead-letter-exchange": "dead", "x-message-ttl": 60_000}
    opened.queue_declare("mail", durable=True, arguments=short)


def kill(served: Timed) -> list[tuple[str, str, str, int, int]]:
    """Let messages die; queue, reason, service, retries and milliseconds of life of each."""
    died = []
    with served.channel() as opened:
        declare(opened)
        for number in range(7):
            service = "shop" if number % 2 else HOSTILE
            served.put(opened, "", "orders", app_id=service, timestamp=served.now_s())
            served.clock.advance(seconds=number)
            tag = opened.basic_get("orders")[0].delivery_tag
            opened.basic_reject(tag, requeue=False)
            died.append(("orders", "rejected", service, 0, number * 1000))
        served.clock.advance(seconds=3 * 3600)
        for _ in range(4):
            served.put(opened, "", "mail", timestamp=served.now_s())
        served.clock.advance(seconds=60)
        died += [("mail", "expired", "(none)", 0, 60_000)] * 4
        # One is sent back by hand, as a retrying client does, and dies once more.
        served.wait_for("dead")
        _, properties, body = opened.basic_get("dead", auto_ack=True)
        opened.basic_publish("", "orders", body, properties)
        opened.basic_reject(opened.basic_get("orders")[0].delivery_tag, requeue=False)
        _, _, service, _, _ = died.pop(0)
        lived_ms = 3 * 3600_000 + 60_000 + sum(range(7)) * 1000
        died.append(("orders", "rejected", service, 1, lived_ms))
        opened.queue_declare("dead", passive=True)
    return died


def test_dead_letters_of_a_queue_are_counted_and_stay(spark: SparkSession, tmp_path: Path) -> None:
    with timed(tmp_path / "data") as served:
        died = kill(served)
        environment = environment_of(served, tmp_path)
        assert dead_letter_queues(environment) == ["dead"]
        found = report(read_dead_letters(spark, environment, Sources(["dead"]), None, None), 10)
        with served.channel() as opened:
            left = [opened.basic_get("dead", auto_ack=True) for _ in died]
        # Nothing was taken, and nothing was ever delivered.
        assert [method.redelivered for method, _, _ in left] == [False] * len(died)
    assert found["letters"] == len(died)
    for position, name in enumerate(("queue", "reason", "service")):
        counts = {row["value"]: row["letters"] for row in found["by"][name]}
        assert counts == Counter(one[position] for one in died)
    assert {row["value"] for row in found["by"]["routing_key"]} == {"orders", "mail"}
    assert (found["retries"], found["retries_max"]) == (1, 1)
    lives = sorted(one[4] for one in died)
    assert found["alive_ms_p50"] == lives[(len(lives) + 1) // 2 - 1]
    assert found["alive_ms_p95"] == lives[-1]
    assert len(found["by"]["hour"]) == len({row["hour"] for row in found["hours"]}) == 2
    worst = found["offenders"][0]
    assert (worst["queue"], worst["service"], worst["letters"]) == ("mail", "(none)", 4)


def test_streams_and_the_lake_give_the_same_report(spark: SparkSession, tmp_path: Path) -> None:
    with timed(tmp_path / "data") as served:
        died = kill(served)
        environment = environment_of(served, tmp_path)
        archived(spark, environment, "dead.log")
        ways = (Sources(streams=["dead.log"]), Sources(tables=["dead.log"]))
        both = [read_dead_letters(spark, environment, way, None, None).collect() for way in ways]
        late = read_dead_letters(spark, environment, ways[1], served.hour(), None)
        assert late.count() == 5  # four expired, one died again
        lives = read_dead_letters(
            spark, environment, Sources(streams=["lives"]), None, None
        ).collect()
    # The stream has the first death of the one that died twice as well.
    assert len(both[0]) == len(died) + 1
    assert sorted(both[0]) == sorted(both[1])
    assert [(row.queue, row.reason) for row in lives] == [("orders", "rejected")] * 8
    assert sorted(row.alive_ms for row in lives)[:7] == [n * 1000 for n in range(7)]
    assert {row.service for row in lives} == {"shop", HOSTILE}


async def bury(url: str) -> None:
    """Two orders fail for good, one of them after two retries."""
    bus = Bus(url, topic.layout("shop.orders", retries_max=2, retry_delay_s=0.02), settings=FAST)

    @bus.on(Placed)
    async def fail(event: Placed) -> int:
        if event.number == 0:
            return 422
        raise LookupError(f"no order {event.number}\nand more lines")

    async with bus:
        async with channel(url) as opened:
            witness = await opened.declare_queue("witness", durable=True)
            await witness.bind("shop.orders.dlq")
        for number in range(2):
            await bus.publish(Placed(number))
            await take(url, "witness")


def test_dead_letters_of_the_bus_say_status_error_and_retries(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    async def within() -> None:
        with anyio.fail_after(BUS_WITHIN_S):
            await bury(served.server.url)

    anyio.run(within)
    page = tmp_path / "dead.html"
    given = ["--url", served.http, "--json", "--html", str(page)]
    done = CliRunner().invoke(APP, ["pipeline", "deadletters", *given])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["sources"] == ["shop.orders.dlq"]
    rows = {row["reason"]: row for row in found["offenders"]}
    assert set(rows) == {"status 422", "failed"}
    assert rows["failed"]["error_class"] == "LookupError"
    assert rows["failed"]["error"] == "LookupError: no order 1"
    assert rows["failed"]["retries_max"] == 2
    assert rows["status 422"]["retries_max"] == 0
    assert {row["queue"] for row in rows.values()} == {"shop.orders"}
    assert "LookupError" in page.read_text()


def test_no_header_breaks_the_report(spark: SparkSession) -> None:
    """Publishers write any headers: invalid numbers become null, and every letter counts."""
    number = "99999999999999999999"
    death = {
        **{"queue": "q", "reason": "rejected", "count": (1 << 63) - 1, "exchange": ""},
        **{"routing_keys": [], "time": None, "original_expiration": None},
    }
    frame = messages(
        spark,
        {"x_death": [{**death, "count": None}], "headers": {}},
        {"x_death": [death, death], "headers": {"x-exception-message": "  \n\n"}},
        {"x_death": [], "headers": {"x-last-death-queue": "q", "x-final-retry-count": "-"}},
        {"headers": {"x-original-queue": "q", "x-published-ms": number}},
        {"headers": {"x-original-queue": "q", "x-error": "java.io.IOException: no\nat x"}},
        {"headers": {"x-original-queue": "q", "x-error": "it is, said (he): so"}},
        {"headers": {"x-final-error": "no dead letter"}},
        {"headers": None},
    )
    found = dead_letters(frame).collect()
    assert [row.queue for row in found] == ["q"] * 6
    assert [row.error_class for row in found] == [None] * 4 + ["java.io.IOException", None]
    assert [row.alive_ms for row in found] == [None] * 6
    assert [row.retries for row in found] == [0, 2 * COUNT_MAX - 1, 0, 0, 0, 0]
    counts = {row.value: row.letters for row in by_dimension(dead_letters(frame), 1).collect()}
    assert counts["q"] == 6


def test_invalid_life_events_do_not_break_the_report(spark: SparkSession) -> None:
    acked = {"x-event": "acked", "x-queue": "q"}
    frame = messages(
        spark,
        {"headers": {"x-event": "queued", "x-queue": "q", "x-broker-id": "7"}, "body": b"any"},
        {"headers": acked, "body": b"7-9"},
        {"headers": acked, "body": b"\xff-\xfe"},
        {"headers": acked, "body": b"9-7"},
        {"headers": acked, "body": b"1-99999999999999999999"},
        {"headers": acked, "body": f"1-{(1 << 63) - 1}".encode()},
        {"headers": {"x-event": "due", "x-next-id": "many"}, "body": b"7"},
        {"headers": {"x-event": "published"}, "body": b"7"},
        {"headers": None, "body": b"7"},
    )
    found = [(row.event, row.id) for row in queue_events(frame).collect()]
    assert found == [("queued", 7), ("acked", 7), ("acked", 8), ("acked", 9)]
    assert [row.kind for row in durations(queue_events(frame)).collect()] == ["to ack"]
