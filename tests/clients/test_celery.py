"""Celery with a real worker: prefork processes, kombu and py-amqp underneath.

The rpc result backend refuses chords by design ("does not support chords"), on any broker. A chord
therefore runs as Celery's users run it: tasks over AMQP, results in a backend that can be joined,
and Celery's own `chord_unlock` task, which retries through the broker until the header is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import celery.exceptions
import kombu.pools
import pika
import pytest
from celery import Celery, chain, chord, group

from tests.clients.apps.celery_app import make_app
from tests.clients.process import Child

Fresh = Callable[[str], str]
WAIT_S = 60
ROOT = Path(__file__).parents[2]
DELAY_LEVELS = 28


class Workers:
    """Starts workers of one application and kills at the end those that still run."""

    def __init__(self, broker: str, backend: str, prefix: str, queue_type: str) -> None:
        self.app = make_app(broker, backend, prefix, queue_type)
        self.prefix = prefix
        self._children: list[Child] = []
        self._env = {
            "LEVERET_APP_BROKER": broker,
            "LEVERET_APP_BACKEND": backend,
            "LEVERET_APP_PREFIX": prefix,
            "LEVERET_APP_QUEUE_TYPE": queue_type,
        }

    def start(self, name: str, concurrency: int = 2) -> Child:
        module = "tests.clients.apps.celery_app"
        worker = ["worker", "-n", f"{name}@clients", "-c", str(concurrency), "-l", "info"]
        child = Child(
            [sys.executable, "-m", "celery", "-A", module, *worker], env=self._env, cwd=ROOT
        )
        self._children.append(child)
        child.wait_for(r"clients ready\.")
        return child

    def close(self) -> None:
        for child in self._children:
            child.kill()
        results = getattr(self.app.backend, "result_consumer", None)
        if results is not None and results._consumer is not None:
            results.stop()
        self.app.close()


def names_of(prefix: str) -> list[str]:
    return [
        prefix,
        f"{prefix}.pidbox",
        f"reply.{prefix}.pidbox",
        f"{prefix}.ev",
        f"{prefix}.results",
    ]


@pytest.fixture(scope="module", autouse=True)
def pools() -> Iterator[None]:
    """Celery's applications share kombu's connection pools, which live until reset."""
    yield
    kombu.pools.reset()


@pytest.fixture
def workers(amqp_url: str, fresh: Fresh, leftovers: list[str]) -> Iterator[Workers]:
    """Workers of an application that no other test uses; none runs yet."""
    workers = Workers(amqp_url, "rpc://", fresh("celery"), "classic")
    leftovers += names_of(workers.prefix)
    yield workers
    workers.close()


@pytest.fixture(scope="module")
def shared(amqp_url: str, fresh: Fresh, leftovers: list[str]) -> Iterator[Workers]:
    """One running worker for the tests that leave it as they found it."""
    workers = Workers(amqp_url, "rpc://", fresh("shared"), "classic")
    leftovers += names_of(workers.prefix)
    worker = workers.start("shared")
    yield workers
    assert worker.stop() == 0, worker.output()
    workers.close()


@pytest.fixture
def app(shared: Workers) -> Celery:
    return shared.app


def send(app: Celery, name: str, *args: Any, **options: Any) -> Any:
    return app.tasks[name].apply_async(args, **options)


def test_delay_returns_the_result(app: Celery) -> None:
    assert app.tasks["add"].delay(2, 3).get(timeout=WAIT_S) == 5


def test_errors_come_back_to_the_caller(app: Celery) -> None:
    with pytest.raises(TypeError):
        send(app, "add", 1, "one").get(timeout=WAIT_S)


def test_retry_with_countdown(app: Celery) -> None:
    assert send(app, "flaky", 2).get(timeout=WAIT_S) == 2


def test_eta_is_not_early(app: Celery) -> None:
    started_s = time.monotonic()
    result = send(app, "add", 1, 1, eta=app.now() + timedelta(seconds=1.5))
    assert result.get(timeout=WAIT_S) == 2
    assert time.monotonic() - started_s >= 1.4


def test_expired_task_is_revoked(app: Celery) -> None:
    result = send(app, "add", 1, 1, countdown=1, expires=0.2)
    with pytest.raises(celery.exceptions.TaskRevokedError):
        result.get(timeout=WAIT_S)


def test_group_and_chain(app: Celery) -> None:
    add = app.tasks["add"]
    assert group(add.s(n, n) for n in range(20))().get(timeout=WAIT_S) == [2 * n for n in range(20)]
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=WAIT_S) == 10


def test_chord_is_refused_by_the_rpc_backend(app: Celery) -> None:
    with pytest.raises(NotImplementedError, match="does not support chords"):
        chord([app.tasks["add"].s(1, 1)])(app.tasks["total"].s())


def test_inspect_and_ping_by_broadcast(app: Celery) -> None:
    node = "shared@clients"
    inspect = app.control.inspect(destination=[node], timeout=WAIT_S, limit=1)
    assert inspect.ping() == {node: {"ok": "pong"}}
    assert "add" in inspect.registered()[node]
    assert app.control.ping(timeout=WAIT_S, limit=1) == [{node: {"ok": "pong"}}]


def test_revoked_task_does_not_run(app: Celery) -> None:
    result = send(app, "add", 1, 1, countdown=1.5)
    node = "shared@clients"
    replies = app.control.revoke(result.id, reply=True, destination=[node], timeout=WAIT_S, limit=1)
    assert replies[0][node]["ok"].endswith("revoked")
    with pytest.raises(celery.exceptions.TaskRevokedError):
        result.get(timeout=WAIT_S)


def test_consumers_are_added_and_cancelled_at_run_time(app: Celery, fresh: Fresh) -> None:
    queue, node = fresh("added"), ["shared@clients"]
    options = {"reply": True, "destination": node, "timeout": WAIT_S, "limit": 1}
    result = send(app, "add", 20, 22, queue=queue)
    assert "ok" in app.control.add_consumer(queue, **options)[0][node[0]]
    assert result.get(timeout=WAIT_S) == 42
    assert "ok" in app.control.cancel_consumer(queue, **options)[0][node[0]]


def test_events_tell_a_task_s_life(app: Celery) -> None:
    seen: list[str] = []
    with app.connection_for_read() as connection:

        def on_event(event: dict[str, Any]) -> None:
            seen.append(event["type"])
            if event["type"] == "task-succeeded":
                receiver.should_stop = True

        receiver = app.events.Receiver(connection, handlers={"*": on_event})
        consumer = receiver.itercapture(limit=None, timeout=WAIT_S, wakeup=False)
        next(consumer)  # the consumer is set up; nothing that follows is missed
        send(app, "add", 1, 2)
        for _ in consumer:
            pass
    lives = [kind for kind in seen if kind.startswith("task-")]
    assert {"task-sent", "task-received", "task-started", "task-succeeded"} <= set(lives)


def test_priorities_decide_the_order(workers: Workers, tmp_path: Path) -> None:
    order = tmp_path / "order"
    results = [
        send(workers.app, "note", str(order), str(priority), priority=priority)
        for priority in (1, 9, 5, 9, 0)
    ]
    workers.start("priorities", concurrency=1)
    results[-1].get(timeout=WAIT_S)  # the last sent is the least urgent
    assert order.read_text().split() == ["9", "9", "5", "1", "0"]


def test_killed_worker_s_task_is_redelivered(workers: Workers, tmp_path: Path) -> None:
    marker = tmp_path / "started"
    first = workers.start("first")
    result = send(workers.app, "hold", str(marker))
    first.wait_for("holding")
    first.kill()
    workers.start("second")
    assert result.get(timeout=WAIT_S) is True


def test_chord_over_amqp(amqp_url: str, fresh: Fresh, leftovers: list[str], tmp_path: Path) -> None:
    workers = Workers(amqp_url, f"file://{tmp_path}", fresh("chord"), "classic")
    leftovers += names_of(workers.prefix)
    workers.start("chord")
    add, total = workers.app.tasks["add"], workers.app.tasks["total"]
    result = chord([add.s(n, n) for n in range(10)])(total.s())
    assert result.get(timeout=WAIT_S, interval=0.1) == 90
    workers.close()


def test_quorum_queues_and_native_delayed_delivery(
    amqp_url: str, fresh: Fresh, leftovers: list[str]
) -> None:
    """Delays as topic exchanges and queues with a TTL, one for each bit of the delay."""
    workers = Workers(amqp_url, "rpc://", fresh("quorum"), "quorum")
    leftovers += names_of(workers.prefix)
    leftovers += [f"celery_delayed_{level}" for level in range(DELAY_LEVELS)]
    leftovers += ["celery_delayed_delivery"]
    workers.start("quorum")
    assert send(workers.app, "add", 1, 2).get(timeout=WAIT_S) == 3
    started_s = time.monotonic()
    result = send(workers.app, "add", 3, 4, countdown=5)
    assert waiting_in(amqp_url, "celery_delayed_2") == 1  # for four seconds
    assert result.get(timeout=WAIT_S) == 7
    assert time.monotonic() - started_s >= 4.9
    assert send(workers.app, "flaky", 1).get(timeout=WAIT_S) == 1
    workers.close()


def waiting_in(amqp_url: str, queue: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    count = connection.channel().queue_declare(queue, passive=True).method.message_count
    connection.close()
    return int(count)
