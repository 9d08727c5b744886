"""Task and messaging frameworks built on the clients: dramatiq, taskiq, FastStream.

Each runs its real worker as a process; what the worker did is read from its output.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import dramatiq
import pika
import pika.exceptions
import pytest
from faststream.rabbit import RabbitBroker
from taskiq.kicker import AsyncKicker

from tests.clients.apps.dramatiq_app import make_broker as make_dramatiq
from tests.clients.apps.taskiq_app import make_broker as make_taskiq
from tests.clients.process import Child

Fresh = Callable[[str], str]
Start = Callable[..., Child]
ROOT = Path(__file__).parents[2]
WAIT_S = 60


@pytest.fixture
def start(amqp_url: str) -> Iterator[Start]:
    """Starts a worker process of an application and stops it after the test."""
    children: list[Child] = []

    def start_worker(*module: str, queue: str, ready: str, plugin: str = "no") -> Child:
        names = {"LEVERET_APP_QUEUE": queue, "LEVERET_APP_PLUGIN": plugin}
        environment = {"LEVERET_APP_BROKER": amqp_url, **names}
        children.append(Child([sys.executable, "-m", *module], env=environment, cwd=ROOT))
        children[-1].wait_for(ready)
        return children[-1]

    yield start_worker
    for child in children:
        child.stop()


def test_dramatiq_worker(amqp_url: str, fresh: Fresh, leftovers: list[str], start: Start) -> None:
    queue = fresh("dramatiq")
    leftovers += [f"{queue}.DQ", f"{queue}.XQ"]
    application = "tests.clients.apps.dramatiq_app"
    worker = start(
        "dramatiq", application, "-p1", "-t2", queue=queue, ready="Worker process is ready"
    )
    with closing(make_dramatiq(amqp_url)) as broker:
        broker.declare_queue(queue)

        def send(actor: str, *arguments: object, delay_ms: int | None = None) -> None:
            message: dramatiq.Message[None] = dramatiq.Message(
                queue_name=queue, actor_name=actor, args=arguments, kwargs={}, options={}
            )
            broker.enqueue(message, delay=delay_ms)

        send("note", "at once")
        worker.wait_for("noted at once")
        started_s = time.monotonic()
        send("note", "later", delay_ms=1000)
        worker.wait_for("noted later")
        assert time.monotonic() - started_s >= 1
        send("flaky", "retried", 2)
        worker.wait_for("recovered retried 3")
        send("doomed")
        worker.wait_for("doomed")
    assert worker.stop() == 0, worker.output()
    assert waiting_in(amqp_url, f"{queue}.XQ") == 1


@pytest.mark.parametrize("plugin", ["no", "yes"], ids=["delay queue", "delayed exchange"])
def test_taskiq_worker(
    amqp_url: str, fresh: Fresh, leftovers: list[str], start: Start, plugin: str
) -> None:
    if plugin == "yes" and not has_delayed_exchange(amqp_url, fresh("probe")):
        pytest.skip("this broker has no exchange type x-delayed-message")
    queue = fresh("taskiq")
    leftovers += [f"{queue}.dead", f"{queue}.delay", f"{queue}.plugin_delay"]
    application = ["tests.clients.apps.taskiq_app:broker", "--workers", "1"]
    worker = start(
        "taskiq", "worker", *application, queue=queue, ready="Listening started", plugin=plugin
    )

    async def send() -> None:
        broker = make_taskiq(amqp_url, queue, plugin == "yes")
        await broker.startup()
        note: AsyncKicker[[str], None] = AsyncKicker("note", broker, {})
        late: AsyncKicker[[str], None] = AsyncKicker("note", broker, {"delay": 1.0})
        retry = {"retry_on_error": True}
        flaky: AsyncKicker[[str, int], None] = AsyncKicker("flaky", broker, retry)
        await note.kiq("at once")
        await late.kiq("later")
        await flaky.kiq("retried", 2)
        await broker.shutdown()

    started_s = time.monotonic()
    asyncio.run(send())
    worker.wait_for("noted at once")
    worker.wait_for("noted later")
    assert time.monotonic() - started_s >= 1
    worker.wait_for("recovered retried 3")


def test_faststream_application(
    amqp_url: str, fresh: Fresh, leftovers: list[str], start: Start
) -> None:
    prefix = fresh("faststream")
    leftovers += [f"{prefix}.{name}" for name in ("orders", "placed", "dead", "square")]
    worker = start(
        "tests.clients.apps.faststream_app", queue=prefix, ready="FastStream app started"
    )

    async def send() -> object:
        async with RabbitBroker(amqp_url) as broker:
            orders = f"{prefix}.orders"
            await broker.publish(
                {"item": "tea", "count": 2}, exchange=orders, routing_key="order.a"
            )
            await broker.publish(
                {"item": "air", "count": -1}, exchange=orders, routing_key="order.b"
            )
            answer = await broker.request(12, f"{prefix}.square", timeout=WAIT_S)
            return await answer.decode()

    assert asyncio.run(send()) == 144
    worker.wait_for("ordered 2 tea")
    worker.wait_for("refused air")


def waiting_in(amqp_url: str, queue: str) -> int:
    with closing(pika.BlockingConnection(pika.URLParameters(amqp_url))) as connection:
        declared = connection.channel().queue_declare(queue, passive=True)
        return int(declared.method.message_count)


def has_delayed_exchange(amqp_url: str, name: str) -> bool:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    try:
        delayed = {"x-delayed-type": "direct"}
        connection.channel().exchange_declare(name, "x-delayed-message", arguments=delayed)
    except pika.exceptions.AMQPError:
        return False
    finally:
        if connection.is_open:
            connection.close()
    return True
