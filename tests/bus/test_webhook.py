"""Webhooks: messages of a real broker, posted to a real HTTP server."""

import asyncio
import contextlib
import json
import logging
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret.bus import fanout, topic
from leveret.bus.delivery import Delivery
from leveret.bus.health_port import HealthPort
from leveret.bus.topology import Layout
from leveret.bus.webhook.webhook import HEADER_CHARS_MAX, Webhook, request_headers
from tests.bus.dead_letters import Stage
from tests.bus.nodes import Node
from tests.clients.process import Child
from tests.http_target import Request, Target, http_target

ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0
RETRY_DELAY_S = 0.1


@pytest.fixture
def amqp_url(node: Node) -> str:
    return node.url


@pytest.fixture
def target() -> Iterator[Target]:
    with http_target() as found:
        yield found


def service() -> str:
    return f"hook-{uuid.uuid4().hex[:8]}"


@contextlib.asynccontextmanager
async def running(
    url: str, layout: Layout, target: Target, **options: Any
) -> AsyncIterator[Webhook]:
    webhook = Webhook(url, layout, target.url, **options)
    await webhook.start()
    try:
        yield webhook
    finally:
        await webhook.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - the condition depends on other processes
            await asyncio.sleep(0.02)


def publish(stage: Stage, *bodies: bytes, **properties: Any) -> None:
    with stage.channel() as channel:
        for body in bodies:
            given = {"message_id": body.decode(), "delivery_mode": 2, **properties}
            channel.basic_publish("", stage.layout.queue, body, pika.BasicProperties(**given))


def test_status_of_the_answer_settles_the_message(amqp_url: str, target: Target) -> None:
    layout = fanout.layout(service(), retry_delay_s=RETRY_DELAY_S)
    stage = Stage(amqp_url, layout)
    statuses = (200, 204, 299, 301, 400, 404, 409, 425, 429, 500, 503)

    def answer(request: Request) -> int:
        seen = [each.body for each in target.requests].count(request.body)
        return int(request.body) if seen == 1 else 200

    async def play() -> Webhook:
        async with running(amqp_url, layout, target) as webhook:
            publish(stage, *(b"%d" % status for status in statuses))
            await until(lambda: webhook.counts.acked == len(statuses))
        return webhook

    target.answer = answer
    webhook = asyncio.run(play())
    attempts: dict[int, list[str]] = {status: [] for status in statuses}
    for request in target.requests:
        attempts[int(request.body)].append(request.headers["X-Attempt"])
    for status, seen in attempts.items():
        # 2xx acks; 425 comes back as the same attempt; every other status is a retry.
        wanted = ["1"] if 200 <= status < 300 else ["1", "1"] if status == 425 else ["1", "2"]
        assert seen == wanted, status
    assert (webhook.counts.failed, webhook.counts.early) == (7, 1)
    assert stage.back() == stage.dead() == []


def test_message_that_fails_too_often_is_a_dead_letter(
    amqp_url: str, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    layout = fanout.layout(service(), retry_delay_s=RETRY_DELAY_S, retries_max=2)
    stage = Stage(amqp_url, layout)

    async def play() -> None:
        async with running(amqp_url, layout, target) as webhook:
            publish(stage, b"m1")
            await until(lambda: webhook.counts.failed == 3)

    target.answer = lambda _: 503
    with caplog.at_level(logging.WARNING, "leveret.bus.webhook.webhook"):
        asyncio.run(play())
    (letter,) = stage.take(layout.dlq)
    assert letter.headers["x-final-status-code"] == 503
    assert letter.headers["x-final-retry-count"] == 2
    assert [request.headers["X-Attempt"] for request in target.requests] == ["1", "2", "3"]
    facts = [vars(r)["facts"] for r in caplog.records if r.name == "leveret.bus.webhook.webhook"]
    assert [(fact["attempt"], fact["status"]) for fact in facts] == [(1, 503), (2, 503), (3, 503)]


def test_no_answer_in_time_is_an_exception(amqp_url: str, target: Target) -> None:
    layout = fanout.layout(service(), retry_delay_s=RETRY_DELAY_S, retries_max=0)
    stage = Stage(amqp_url, layout)

    def answer(_: Request) -> int:
        target.release.wait(WITHIN_S)
        return 200

    async def play() -> None:
        async with running(amqp_url, layout, target, timeout_s=0.2) as webhook:
            publish(stage, b"m1")
            await until(lambda: webhook.counts.failed == 1)

    target.answer = answer
    asyncio.run(play())
    (letter,) = stage.take(layout.dlq)
    assert letter.headers["x-final-error"] == "PostError: no answer within 0.2 s"
    assert "x-final-status-code" not in letter.headers


def test_bad_message_of_the_topic_topology_is_not_tried_again(
    amqp_url: str, target: Target
) -> None:
    layout = topic.layout(service(), retry_delay_s=RETRY_DELAY_S)
    stage = Stage(amqp_url, layout)

    async def play() -> None:
        async with running(amqp_url, layout, target) as webhook:
            publish(stage, b"m1")
            await until(lambda: webhook.counts.failed == 1)

    target.answer = lambda _: 422
    asyncio.run(play())
    assert len(target.requests) == 1
    assert stage.dead() == ["m1"]


def test_request_carries_the_message(amqp_url: str, target: Target) -> None:
    layout = fanout.layout(service())
    stage = Stage(amqp_url, layout)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def play() -> None:
        own = {"Authorization": "Bearer x"}
        async with running(amqp_url, layout, target, headers=own) as webhook:
            publish(
                stage,
                b'{"a": 1}',
                message_id="m1",
                type="OrderPlaced",
                content_type="application/json",
                headers={"tenant": "ä", "table": {"a": [1]}, "traceparent": trace},
            )
            await until(lambda: webhook.counts.acked == 1)

    asyncio.run(play())
    (request,) = target.requests
    assert request.body == b'{"a": 1}'
    wanted = {
        "Content-Type": "application/json",
        "X-Message-Id": "m1",
        "X-Type": "OrderPlaced",
        "X-Queue": layout.queue,
        "X-Attempt": "1",
        "X-Header-tenant": "%C3%A4",
        "X-Header-table": '{"a": [1]}',
        "traceparent": trace,
        "Authorization": "Bearer x",
    }
    assert {name: request.headers[name] for name in wanted} == wanted


def test_header_that_no_server_would_take_is_left_out() -> None:
    headers = {"long": "x" * (HEADER_CHARS_MAX + 1), "line": "a\r\nX-Evil: 1"}
    made = request_headers(Delivery("q", b"", "m1", headers=headers), {})
    assert "X-Header-long" not in made
    assert made["X-Header-line"] == "a%0D%0AX-Evil: 1"


def test_no_more_requests_at_once_than_allowed(amqp_url: str, target: Target) -> None:
    layout = fanout.layout(service())
    stage = Stage(amqp_url, layout)
    together = threading.Barrier(3)

    def answer(_: Request) -> int:
        together.wait(WITHIN_S)
        return 200

    async def play() -> None:
        async with running(amqp_url, layout, target, concurrency=3) as webhook:
            publish(stage, *(b"%d" % number for number in range(9)))
            await until(lambda: webhook.counts.acked == 9)

    target.answer = answer
    asyncio.run(play())
    assert target.at_once_most == 3


def test_health_port_answers_with_the_given_health() -> None:
    well = {"is": True}

    async def ask() -> tuple[bool, dict[str, Any]]:
        return well["is"], {"reason": "" if well["is"] else "not connected"}

    async def play() -> tuple[tuple[int, Any], tuple[int, Any]]:
        port = HealthPort(ask, str)
        number = await port.start("127.0.0.1", 0)
        try:
            first = await asyncio.to_thread(_get, number)
            well["is"] = False
            return first, await asyncio.to_thread(_get, number)
        finally:
            await port.stop()

    first, second = asyncio.run(play())
    assert first == (200, {"reason": ""})
    assert second == (503, {"reason": "not connected"})


def _get(port: int) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=WITHIN_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def test_sigterm_waits_for_the_running_request(amqp_url: str, target: Target) -> None:
    layout = fanout.layout(service())
    stage = Stage(amqp_url, layout)
    asked = threading.Event()

    def answer(_: Request) -> int:
        asked.set()
        target.release.wait(WITHIN_S)
        return 200

    target.answer = answer
    words = ["--service", layout.service, "--url", target.url]
    words += ["--amqp-url", "amqp://127.0.0.1:1/", "--amqp-url", amqp_url]  # the first is down
    command = [
        sys.executable,
        "-m",
        "leveret",
        "bus",
        "run",
        *words,
        "--health-port",
        "0",
        "--json",
    ]
    runner = Child(command, cwd=ROOT)
    try:
        ready = json.loads(runner.wait_for(r"^(\{.*\"event\": \"ready\".*\})")[1])
        assert ready["queue"] == layout.queue
        status, told = _get(ready["health"])
        assert (status, told["is_consuming"], told["acked"]) == (200, True, 0)
        publish(stage, b"m1")
        assert asked.wait(WITHIN_S)
        stopping = threading.Thread(target=runner.stop)
        stopping.start()
        asyncio.run(until(lambda: _consumers(stage) == 0))
        publish(stage, b"m2")
        target.release.set()
        stopping.join()
        assert runner.wait() == 0, runner.output()
    finally:
        runner.kill()
    ended = json.loads(runner.wait_for(r"^(\{.*\"event\": \"ended\".*\})")[1])
    assert ended["acked"] == 1
    assert [request.body for request in target.requests] == [b"m1"]
    assert stage.back() == ["m2"]


def _consumers(stage: Stage) -> int:
    with stage.channel() as channel:
        return int(channel.queue_declare(stage.layout.queue, passive=True).method.consumer_count)


def test_wrong_target_url_is_one_line(target: Target) -> None:
    words = ["--service", "a-b", "--url", "nothing", "--amqp-url", "amqp://127.0.0.1:1/"]
    runner = Child([sys.executable, "-m", "leveret", "bus", "run", *words], cwd=ROOT)
    assert runner.wait() == 1
    assert runner.output() == "leveret bus: 'nothing' is not an http:// or https:// address\n"
