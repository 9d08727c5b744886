"""A producer: blocks of messages to one queue, as fast as socket, confirms and rate allow."""

import time

from leveret.perf.client import Client
from leveret.perf.confirms import Confirms
from leveret.perf.load import Load
from leveret.perf.protocol import Publishes
from leveret.perf.worker import Worker


class Producer(Worker):
    """One connection that publishes."""

    def __init__(self, load: Load, queue: str) -> None:
        self.confirms = Confirms(load.confirm_window, load.burst)
        super().__init__(Client(load, self.confirms))
        self._publishes = Publishes(queue, load.body_bytes, load.persistent)
        self._interval_s = load.producers / load.rate if load.rate else 0.0
        if load.confirm_window:
            self.client.select_confirms()

    def work(self) -> None:
        confirms = self.confirms
        start_s = time.monotonic()
        while not self.stopping:
            count = confirms.allowed()
            if count == 0:
                self.client.read()
                continue
            if self._interval_s:
                due_s = start_s + int(confirms.sent) * self._interval_s
                time.sleep(max(0.0, due_s - time.monotonic()))
            self.client.send(self._publishes.block(count, time.monotonic_ns()))
            confirms.sent += count
