"""A service that moves every message to the dead letters, for a test to kill.

Arguments: url and queue.
"""

import asyncio
import sys

from leveret.bus import Bus, BusSettings, Delivery, QueueType, topic


async def main(url: str, queue: str) -> None:
    layout = topic.layout(queue, queue_type=QueueType.CLASSIC, retries_max=0)
    # A busy machine must not look like a lost session: the test counts messages delivered twice.
    bus = Bus(url, layout, settings=BusSettings(heartbeat_s=60, answer_timeout_s=60.0))

    @bus.on_message()
    async def fail(delivery: Delivery) -> int:
        return 500

    async with bus:
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
