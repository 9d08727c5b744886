"""A consumer: read deliveries as fast as they come, or at a given rate, and acknowledge them."""

import time
from typing import Final

from leveret.perf.client import Client
from leveret.perf.deliveries import Deliveries
from leveret.perf.load import Load
from leveret.perf.pacing import Pace, make_pace
from leveret.perf.producer import is_stamped
from leveret.perf.worker import Worker

WAIT_S: Final = 0.1  # maximum sleep, so that a stop is noticed


class Consumer(Worker):
    """One connection that consumes."""

    def __init__(self, load: Load, queues: list[str]) -> None:
        sample_every = load.sample_every if is_stamped(load) else 0
        self.deliveries = Deliveries(load.acks_every, sample_every)
        super().__init__(Client(load, self.deliveries))
        self._load = load
        for queue in queues:
            self.client.consume(queue, load)

    def work(self) -> None:
        client = self.client
        pace = make_pace(self._load.consumer_rate, (), self._load.consumers, self.start_s)
        take_acks = self.deliveries.take_acks
        send = client.send
        # Deliveries may have arrived before the start. Without their acks, no more would arrive.
        is_new = True
        while not self.stopping:
            if is_new:
                if pace is not None:
                    self._wait_for_rate(pace)
                acks = take_acks()
                if acks:
                    send(acks)
            is_new = client.read()
        if not client.is_hung_up:
            self.deliveries.ack_rest()
            send(take_acks())

    def _wait_for_rate(self, pace: Pace) -> None:
        """Sleep until the deliveries so far match the rate."""
        while not self.stopping:
            wait_s = pace.wait_s(int(self.deliveries.received), time.monotonic())
            if wait_s <= 0:
                return
            time.sleep(min(wait_s, WAIT_S))
