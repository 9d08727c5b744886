"""A taskiq application on aio-pika: tasks whose doings `test_frameworks` reads from the output."""

from __future__ import annotations

import os

from taskiq import SimpleRetryMiddleware
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue


def make_broker(url: str, name: str, plugin: bool) -> AioPikaBroker:
    """A broker whose delays are a queue, or an exchange of the delayed-message plugin."""
    return AioPikaBroker(
        url,
        exchange=Exchange(name=name),
        task_queues=[Queue(name=name)],
        dead_letter_queue=Queue(name=f"{name}.dead"),
        delay_queue=Queue(name=f"{name}.delay"),
        delayed_message_exchange_plugin=plugin,
    ).with_middlewares(SimpleRetryMiddleware(default_retry_count=5))


if "LEVERET_APP_BROKER" in os.environ:
    broker = make_broker(
        os.environ["LEVERET_APP_BROKER"],
        os.environ["LEVERET_APP_QUEUE"],
        os.environ["LEVERET_APP_PLUGIN"] == "yes",
    )
    attempts: dict[str, int] = {}

    @broker.task(task_name="note")
    async def note(text: str) -> None:
        print("noted", text)

    @broker.task(task_name="flaky", retry_on_error=True)
    async def flaky(name: str, failures: int) -> None:
        attempts[name] = attempts.get(name, 0) + 1
        if attempts[name] <= failures:
            raise ValueError(f"{name} failed {attempts[name]} times")
        print("recovered", name, attempts[name])
