"""A consumer: reads deliveries of one queue as fast as they come, and acknowledges them."""

from leveret.perf.client import Client
from leveret.perf.deliveries import Deliveries
from leveret.perf.load import Load
from leveret.perf.worker import Worker


class Consumer(Worker):
    """One connection that consumes."""

    def __init__(self, load: Load, queue: str) -> None:
        self.deliveries = Deliveries(load.prefetch, load.sample_every)
        super().__init__(Client(load, self.deliveries))
        self.client.consume(queue, load)

    def work(self) -> None:
        client = self.client
        take_acks = self.deliveries.take_acks
        send = client.send
        while not self.stopping:
            if client.read():
                acks = take_acks()
                if acks:
                    send(acks)
