"""A broker with a clock that the test moves, so that every duration in a report is known."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika

from leveret.storage.disk import Disk
from leveret.testing import ManualClock, broker
from tests.spark.lake import Served


class Timed(Served):
    """A running broker, and its clock."""

    clock: ManualClock

    def now_s(self) -> int:
        return self.clock.now_ms() // 1000

    def hour(self) -> str:
        """The hour of the broker's time, as reports have it."""
        return datetime.fromtimestamp(self.now_s(), UTC).strftime("%Y-%m-%d %H:00:00")

    def put(self, opened: Any, exchange: str, key: str, **properties: Any) -> None:
        kind = pika.BasicProperties(delivery_mode=2, **properties)
        opened.basic_publish(exchange, key, b"body", kind)


@contextmanager
def timed(folder: Path) -> Iterator[Timed]:
    clock = ManualClock()
    with broker(http=True, disk=Disk(folder), clock=clock) as server:
        found = Timed(server, folder)
        found.clock = clock
        yield found
