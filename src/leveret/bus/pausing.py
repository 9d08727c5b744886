"""A pause that ends early when the bus stops."""

import asyncio


async def pause(stopping: asyncio.Event, pause_s: float) -> None:
    """Wait for a time, or until `stopping` is set."""
    try:
        async with asyncio.timeout(pause_s):
            await stopping.wait()
    except TimeoutError:
        return
