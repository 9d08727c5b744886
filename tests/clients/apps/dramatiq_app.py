"""A dramatiq application: actors whose doings `test_frameworks` reads from the worker's output."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

QUEUE = os.environ.get("LEVERET_APP_QUEUE", "clients")


def make_broker(url: str) -> RabbitmqBroker:
    return RabbitmqBroker(url=url, confirm_delivery=True, max_priority=10)


if "LEVERET_APP_BROKER" in os.environ:
    dramatiq.set_broker(make_broker(os.environ["LEVERET_APP_BROKER"]))

    attempts: dict[str, int] = {}

    @dramatiq.actor(queue_name=QUEUE)
    def note(text: str) -> None:
        print("noted", text)

    @dramatiq.actor(queue_name=QUEUE, max_retries=5, min_backoff=200, max_backoff=400)
    def flaky(name: str, failures: int) -> None:
        """Fails so many times; each retry waits in the delay queue."""
        attempts[name] = attempts.get(name, 0) + 1
        if attempts[name] <= failures:
            raise ValueError(f"{name} failed {attempts[name]} times")
        print("recovered", name, attempts[name])

    @dramatiq.actor(queue_name=QUEUE, max_retries=0)
    def doomed() -> None:
        """Always fails: its message ends in the dead-letter queue."""
        raise ValueError("doomed")
