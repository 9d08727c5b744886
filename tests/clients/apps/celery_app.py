"""A Celery application: the tasks that `test_celery` sends to a real worker.

The test makes the same application with `make_app`; the worker gets it from the environment. Every
name that Celery puts on the broker starts with the prefix, except those of native delayed
delivery, which Celery fixes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

HOLD_S = 60


def make_app(broker: str, backend: str, prefix: str, queue_type: str = "classic") -> Celery:
    app = Celery("clients", broker=broker, backend=backend)
    app.conf.update(
        task_default_queue=prefix,
        task_default_exchange=prefix,
        task_default_exchange_type="topic" if queue_type == "quorum" else "direct",
        task_default_routing_key=prefix,
        task_default_queue_type=queue_type,
        task_queue_max_priority=None if queue_type == "quorum" else 10,
        result_exchange=prefix + ".results",
        control_exchange=prefix,
        event_exchange=prefix + ".ev",
        broker_transport_options={"confirm_publish": True},
        broker_connection_retry_on_startup=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_send_task_events=True,
        task_send_sent_event=True,
        enable_utc=True,
    )
    define_tasks(app)
    return app


def define_tasks(app: Celery) -> None:
    app.task(add, name="add")
    app.task(total, name="total")
    app.task(name="flaky", bind=True, max_retries=5)(flaky)
    app.task(name="hold", bind=True, acks_late=True, reject_on_worker_lost=True)(hold)
    app.task(name="note", acks_late=True)(note)


def add(x: int, y: int) -> int:
    return x + y


def total(numbers: list[int]) -> int:
    return sum(numbers)


def flaky(self: Any, failures: int) -> int:
    """Fails so many times, each time asking for a retry a little later."""
    if self.request.retries < failures:
        raise self.retry(countdown=1, exc=ValueError(f"failure {self.request.retries}"))
    return int(self.request.retries)


def hold(self: Any, marker: str) -> bool:
    """Never ends at the first attempt; says at the second whether it was a redelivery."""
    path = Path(marker)
    if not path.exists():
        path.touch()
        print("holding")
        time.sleep(HOLD_S)
    return bool(self.request.delivery_info["redelivered"])


def note(path: str, text: str) -> None:
    """Adds a line to a file, to show the order of execution."""
    with Path(path).open("a") as lines:
        lines.write(text + "\n")


if "LEVERET_APP_BROKER" in os.environ:
    app = make_app(
        os.environ["LEVERET_APP_BROKER"],
        os.environ["LEVERET_APP_BACKEND"],
        os.environ["LEVERET_APP_PREFIX"],
        os.environ["LEVERET_APP_QUEUE_TYPE"],
    )
