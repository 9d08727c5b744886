"""`leveret bus dlq` on both topologies and both brokers, seen through another client.

Every test ends by counting: what was in the dead-letter queue is there, or where it should be.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from leveret.bus import Bus, Delivery, fanout, topic
from leveret.bus.dead_letters.dead_letter import DeadLetter
from leveret.bus.dead_letters.dead_letter_queue import Selection, open_dead_letter_queue
from leveret.cli.app import make_app
from tests.bus.dead_letters import Stage, stage
from tests.bus.nodes import Leveret, Node

APP = make_app("bus")


@dataclass
class Order:
    """An event."""

    order: int


ROOT = Path(__file__).parents[2]
END_WITHIN_S = 60.0


@pytest.fixture
def amqp_url(node: Node) -> str:
    return node.url


@pytest.fixture(params=["fanout", "topic"])
def letters(request: pytest.FixtureRequest, amqp_url: str) -> Stage:
    """An empty dead-letter queue and the other queues of its service."""
    return stage(amqp_url, request.param)


def dlq(letters: Stage, *words: str, answer: str = "") -> Result:
    """Run one command on this dead-letter queue."""
    command, *rest = words
    return CliRunner().invoke(
        APP, ["bus", "dlq", command, *letters.names(), *rest], input=answer, catch_exceptions=False
    )


def rows(letters: Stage, *words: str) -> list[dict[str, Any]]:
    done = dlq(letters, "list", "--json", *words)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [row["message_id"] for row in found]


def names(*numbers: int) -> list[str]:
    return [f"m{number}" for number in numbers]


def test_looking_leaves_order_and_content_as_they_were(letters: Stage) -> None:
    # More than 32, because RabbitMQ's quorum queues lose the order of larger requeues.
    letters.fill(100)
    for _ in range(3):
        assert ids(rows(letters)) == names(*range(1, 101))
    found = letters.take(letters.layout.dlq)
    assert [each.properties.message_id for each in found] == names(*range(1, 101))
    assert found[6].body == b'{"order": {"id": 7}}'
    assert found[6].headers["x-final-error"] == "error 7"
    assert "x-redrive-count" not in found[6].headers


def test_looking_at_a_part_leaves_the_order_too(letters: Stage) -> None:
    # Quorum queues put requeued messages behind all others, or behind those requeued before.
    letters.fill(40)
    assert len(rows(letters)) == 40
    assert ids(rows(letters, "--limit", "2")) == names(1, 2)
    assert ids(rows(letters, "--scan", "3")) == names(1, 2, 3)
    assert dlq(letters, "redrive", "--id", "m2", "--limit", "1").exit_code == 0
    assert letters.dead() == names(1, *range(3, 41))


def test_list_shows_how_each_ended(letters: Stage) -> None:
    letters.fill(1)
    (row,) = rows(letters)
    assert row["status"] == 501
    assert row["error"] == "error 1"
    assert row["retries"] == 10
    assert row["target"] == letters.layout.queue
    assert row["body"] == '{"order": {"id": 1}}'
    table = dlq(letters, "list").stdout
    assert re.search(r" retries +died_at +target ", table)
    assert re.search(r"m1 +501 +error 1 +10 ", table)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--header", "tenant=t0"), (2, 4)),
        (("--status", "502"), (2, 5)),
        (("--error", "error 3"), (3,)),
        (("--text", '"id": 4'), (4,)),
        (("--json-path", "$.order.id=5"), (5,)),
        (("--id", "m1", "--id", "m4"), (1, 4)),
        (("--header", "tenant=t0", "--status", "502"), (2,)),
        (("--older-than-s", "0"), ()),  # these messages hold no time of death
        (("--header", "tenant=none"), ()),
    ],
)
def test_filters_select_messages(
    amqp_url: str, words: tuple[str, ...], found: tuple[int, ...]
) -> None:
    letters = stage(amqp_url, "fanout")
    letters.fill(5)
    assert ids(rows(letters, *words)) == names(*found)
    assert letters.dead() == names(1, 2, 3, 4, 5)


def test_show_prints_one_by_id_or_place(letters: Stage) -> None:
    letters.fill(3)
    done = dlq(letters, "show", "m2", "--json")
    assert json.loads(done.stdout)["headers"]["x-final-error"] == "error 2"
    assert "error 3" in dlq(letters, "show", "3").stdout
    missing = dlq(letters, "show", "m9")
    assert missing.exit_code == 1
    assert "has no message m9" in missing.stderr
    assert letters.dead() == names(1, 2, 3)


def test_redrive_moves_matched_messages_and_keeps_the_others_in_order(letters: Stage) -> None:
    letters.fill(70)
    done = dlq(letters, "redrive", "--header", "tenant=t0", "--json")
    assert json.loads(done.stdout)["done"] == 35
    assert done.exit_code == 0
    assert letters.back() == names(*range(2, 71, 2))
    assert letters.dead() == names(*range(1, 71, 2))


def test_redriven_message_keeps_its_retry_count(letters: Stage) -> None:
    letters.fill(1)
    assert dlq(letters, "redrive").exit_code == 0
    (found,) = letters.take(letters.layout.queue)
    assert found.body == b'{"order": {"id": 1}}'
    assert found.properties.content_type == "application/json"
    assert found.properties.delivery_mode == 2
    (death,) = found.headers["x-death"]
    assert death["count"] == 10
    assert found.headers["x-redrive-count"] == 1
    assert not any(name.startswith("x-final-") for name in found.headers)


def test_reset_starts_the_retry_count_at_zero(letters: Stage) -> None:
    letters.fill(1)
    assert dlq(letters, "redrive", "--reset").exit_code == 0
    (found,) = letters.take(letters.layout.queue)
    assert "x-death" not in found.headers
    assert found.headers.get("x-retry-count", 0) == 0
    assert found.headers["x-redrive-count"] == 1


def test_broker_continues_the_deaths_of_a_redriven_message(letters: Stage) -> None:
    letters.fill(1)
    assert dlq(letters, "redrive").exit_code == 0
    with letters.channel() as channel:
        method, _, _ = channel.basic_get(letters.layout.queue)
        channel.basic_reject(method.delivery_tag, requeue=False)
    waiting = letters.layout.retry_queue
    (found,) = _until_there(letters, waiting)
    count = {death["reason"]: death["count"] for death in found.headers["x-death"]}["rejected"]
    assert count + found.headers.get("x-retry-count", 0) == 11


@pytest.mark.parametrize("kind", ["fanout", "topic"])
def test_redriven_message_is_retried_once_or_from_the_start(amqp_url: str, kind: str) -> None:
    asyncio.run(_redriven_twice(amqp_url, kind))


async def _redriven_twice(url: str, kind: str) -> None:
    make = {
        "fanout": partial(fanout.layout, retries_max=2),
        "topic": partial(topic.layout, retries_max=2),
    }
    layout = make[kind](f"dlq-{uuid.uuid4().hex[:8]}", retry_delay_s=0.05)
    bus = Bus(url, layout)
    attempts: list[int] = []

    @bus.on_message()
    async def fail(delivery: Delivery) -> int:
        attempts.append(delivery.retry_count)
        return 503

    async def died_again(times: int) -> DeadLetter:
        """Wait until the message was handled so often and is in the dead-letter queue."""
        found: list[DeadLetter] = []
        async with asyncio.timeout(END_WITHIN_S), open_dead_letter_queue(url, layout.dlq) as queue:
            while len(attempts) < times or not found:
                await asyncio.sleep(0.02)
                found.clear()
                await queue.look(Selection(), found.append)
        return found[0]

    async def redriven(*, reset: bool) -> None:
        async with open_dead_letter_queue(url, layout.dlq) as queue:
            await queue.redrive(Selection(), lambda letter: letter.target(None), reset=reset)

    async with bus:
        await bus.publish(Order(1), routing_key=layout.queue, mandatory=True)
        assert (await died_again(3)).retries == 2
        await redriven(reset=False)
        assert (await died_again(4)).retries == 2
        await redriven(reset=True)
        letter = await died_again(7)
    assert attempts == [0, 1, 2, 2, 0, 1, 2]
    assert (letter.retries, letter.headers["x-redrive-count"]) == (2, 2)


def test_dry_run_changes_nothing(letters: Stage) -> None:
    letters.fill(3)
    done = dlq(letters, "redrive", "--dry-run")
    assert "3 of 3 messages" in done.stdout
    assert f"3 to {letters.layout.queue}" in done.stdout
    assert "2 of 3 messages" in dlq(letters, "drop", "--header", "tenant=t1", "--dry-run").stdout
    assert letters.back() == []
    assert letters.dead() == names(1, 2, 3)


def test_message_whose_queue_is_gone_stays(letters: Stage) -> None:
    letters.fill(1, **{"x-original-queue": "nowhere"})
    letters.fill(1)
    done = dlq(letters, "redrive")
    assert done.exit_code == 1
    assert "message m1 was not handled: there is no queue nowhere" in done.stderr
    assert letters.back() == names(1)
    assert letters.dead() == names(1)
    letters.fill(1, **{"x-original-queue": "nowhere"})
    assert dlq(letters, "redrive", "--to", letters.layout.queue).exit_code == 0
    assert letters.back() == names(1)


def test_limit_takes_the_oldest(letters: Stage) -> None:
    letters.fill(5)
    dlq(letters, "redrive", "--limit", "2")
    assert letters.back() == names(1, 2)
    assert letters.dead() == names(3, 4, 5)


def test_headers_come_back_exactly(letters: Stage) -> None:
    given = {"long": 2**40, "bytes": b"\xff\x00", "list": [1, "a"], "table": {"deep": [True]}}
    letters.fill(1, **given, CC=["somewhere.else"])
    assert dlq(letters, "redrive").exit_code == 0
    (found,) = letters.take(letters.layout.queue)
    assert {name: found.headers[name] for name in given} == given
    assert "CC" not in found.headers


def test_drop_asks_first(letters: Stage) -> None:
    letters.fill(4)
    refused = dlq(letters, "drop", "--header", "tenant=t0", answer="n\n")
    assert "Delete 2 of 4 messages" in refused.stderr
    assert refused.exit_code != 0
    assert ids(rows(letters)) == names(1, 2, 3, 4)
    assert dlq(letters, "drop", "--header", "tenant=t0", answer="y\n").exit_code == 0
    assert ids(rows(letters)) == names(1, 3)
    everything = dlq(letters, "drop", "--yes")
    assert everything.exit_code == 2
    assert dlq(letters, "drop", "--all", "--yes").exit_code == 0
    assert letters.dead() == []


def test_error_is_one_line(amqp_url: str) -> None:
    runner = CliRunner()
    words = ["bus", "dlq", "list", "--amqp-url", amqp_url]
    missing = runner.invoke(APP, [*words, "--dlq", "no.such.queue"])
    assert missing.exit_code == 1
    assert missing.stderr == "leveret bus: there is no queue no.such.queue\n"
    away = runner.invoke(
        APP, ["bus", "dlq", "list", "--dlq", "x", "--amqp-url", "amqp://127.0.0.1:1/"]
    )
    assert away.exit_code == 1
    assert away.stderr.startswith("leveret bus: no connection to the broker")
    assert away.stderr.count("\n") == 1
    assert runner.invoke(APP, words).exit_code == 2


def test_ctrl_c_ends_between_two_messages(letters: Stage) -> None:
    letters.fill(50)
    process = _tool("-m", "leveret", "bus", "dlq", "redrive", *letters.names(), "--rate", "20")
    first = _until_there(letters, letters.layout.queue)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=END_WITHIN_S)
    assert process.returncode == 130, output
    assert "stopped, the others are still in the queue" in output
    moved = [found.properties.message_id for found in first] + letters.back()
    assert moved + letters.dead() == names(*range(1, 51))


def test_ctrl_c_at_the_question_drops_nothing(letters: Stage) -> None:
    letters.fill(3)
    process = _tool("-m", "leveret", "bus", "dlq", "drop", *letters.names(), "--all")
    assert process.stdout is not None
    assert process.stdout.read(6) == "Delete"
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(END_WITHIN_S) == 130  # while the question is open
    finally:
        process.communicate()
    assert letters.dead() == names(1, 2, 3)


def test_broker_killed_during_a_redrive_loses_nothing() -> None:
    broker = Leveret()
    broker.start()
    try:
        letters = stage(broker.url, "topic")
        letters.fill(50)
        process = _tool("-m", "leveret", "bus", "dlq", "redrive", *letters.names(), "--rate", "50")
        first = _until_there(letters, letters.layout.queue)
        broker.kill()
        output, _ = process.communicate(timeout=END_WITHIN_S)
        assert process.returncode == 1
        assert output.startswith("leveret bus: the connection to the broker was lost")
        assert output.count("\n") == 1, output
        broker.start()
        # A message that the test took comes again if the kill was faster than its ack.
        moved = {found.properties.message_id for found in first} | set(letters.back())
        left = letters.dead()
        # A message that was confirmed and not yet removed may be in both queues.
        assert moved | set(left) == set(names(*range(1, 51)))
        assert len(moved) + len(left) <= 52
    finally:
        broker.close()


# A redrive that is killed between the confirm of the third copy and the ack of its original.
_DYING = """
import asyncio, os, signal, sys
import aiormq
from leveret.bus.dead_letters.dead_letter_queue import DeadLetterQueue, Selection
from leveret.clock import Clock

class Dying(DeadLetterQueue):
    acks = 0

    async def _ack(self, tag: int) -> None:
        self.acks += 1
        if self.acks == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        await super()._ack(tag)

async def main(url: str, dlq: str, queue: str) -> None:
    queue_of = Dying(await aiormq.connect(url), dlq, Clock())
    await queue_of.open()
    await queue_of.redrive(Selection(), lambda letter: letter.target(queue))

asyncio.run(main(*sys.argv[1:]))
"""


def test_killed_between_confirm_and_removal_leaves_a_duplicate_and_loses_nothing(
    letters: Stage,
) -> None:
    letters.fill(10)
    layout = letters.layout
    process = _tool("-c", _DYING, letters.url, layout.dlq, layout.queue)
    output, _ = process.communicate(timeout=END_WITHIN_S)
    assert process.returncode == -signal.SIGKILL, output
    _until_count(letters, layout.dlq, 8)
    assert letters.back() == names(1, 2, 3)
    # The third is in both queues, under one id, so a handler can recognise the duplicate.
    assert ids(rows(letters)) == names(*range(3, 11))
    assert dlq(letters, "redrive").exit_code == 0
    assert letters.back() == names(*range(3, 11))
    assert letters.dead() == []


def _tool(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _until_there(letters: Stage, queue: str) -> list[Any]:
    """Wait for the first message of a queue."""
    deadline_s = time.monotonic() + END_WITHIN_S
    while not (found := letters.take(queue)):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found


def _until_count(letters: Stage, queue: str, count: int) -> None:
    deadline_s = time.monotonic() + END_WITHIN_S
    with letters.channel() as channel:
        while channel.queue_declare(queue, passive=True).method.message_count != count:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
