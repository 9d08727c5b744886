"""A service that a message with the number 0 ends, as a crash would.

Arguments: url, topology and name.
"""

import asyncio
import os
import sys
from dataclasses import dataclass

from leveret.bus import Bus, BusSettings, fanout, topic


@dataclass
class Placed:
    """An event."""

    number: int


async def main(url: str, kind: str, name: str) -> None:
    make = fanout.layout if kind == "fanout" else topic.layout
    settings = BusSettings(concurrency=4)
    bus = Bus(url, make(name, retries_max=2), settings=settings)

    @bus.on(Placed)
    async def handle(event: Placed) -> None:
        if event.number == 0:
            os._exit(9)
        await asyncio.sleep(0.01)
        print(f"handled {event.number}", flush=True)

    async with bus:
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
