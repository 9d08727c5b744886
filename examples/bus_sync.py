"""A program without an event loop: it publishes a batch and handles it in threads.

python examples/bus_sync.py amqp://guest:guest@localhost/
"""

import sys
import threading
from dataclasses import dataclass

from leveret.bus import Bus, QueueType, SyncBus, topic


@dataclass
class Measured:
    """A reading of a sensor."""

    sensor: str
    celsius: float


def main(url: str, readings: int = 1_000) -> None:
    bus = SyncBus(Bus(url, topic.layout("demo.measured", queue_type=QueueType.CLASSIC)))
    left = threading.Semaphore(0)

    @bus.on(Measured)
    def store(event: Measured) -> None:
        left.release()

    with bus:
        for number in range(readings):
            bus.send(Measured("roof", number / 10))
        if not bus.wait_for_confirms(timeout_s=30.0):
            raise SystemExit(f"not all are published: {bus.take_failures()}")
        for _ in range(readings):
            if not left.acquire(timeout=30):
                raise SystemExit("not all were handled")
        print(f"{readings} readings handled; health: {bus.health()}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@localhost/")
