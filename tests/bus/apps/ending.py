"""A service whose handler waits for a file, for a test to send a signal meanwhile.

Arguments: url, queue, the way in which it runs (`run`, `sync run` or `sync with`), and the file.
"""

import asyncio
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from leveret.bus import Bus, QueueType, SyncBus, topic


@dataclass
class Placed:
    """An event."""

    number: int


def main(url: str, queue: str, way: str, file: str) -> None:
    bus = Bus(url, topic.layout(queue, queue_type=QueueType.CLASSIC))

    @bus.on(Placed)
    def handle(event: Placed) -> None:
        print("begun", flush=True)
        while not Path(file).exists():
            time.sleep(0.01)
        print("handled", flush=True)

    if way == "run":
        asyncio.run(bus.run())
    elif way == "sync run":
        SyncBus(bus).run()
    else:
        with SyncBus(bus):
            threading.Event().wait()


main(*sys.argv[1:])
