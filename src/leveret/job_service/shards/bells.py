"""Wakes those who wait for a job of a topic."""

import asyncio
from collections import Counter
from typing import Final

from leveret.job_service.shards.memory import Topic

BELLS_MAX: Final = 100_000


class Bells:
    """One bell for each topic that somebody waits for."""

    def __init__(self) -> None:
        self._bells: dict[Topic, asyncio.Event] = {}
        self._waiting: Counter[asyncio.Event] = Counter()  # how many, for each bell

    def ring(self, topic: Topic) -> None:
        bell = self._bells.pop(topic, None)
        if bell is not None:
            bell.set()

    def bell(self, topic: Topic) -> asyncio.Event:
        """Rings once; ask for it before looking, so that nothing is missed in between."""
        if len(self._bells) >= BELLS_MAX:
            self._bells.clear()  # those who wait look again by themselves
        return self._bells.setdefault(topic, asyncio.Event())

    def is_awaited(self, topic: Topic) -> bool:
        """Whether somebody waits for a job of a topic now."""
        return self._bells.get(topic) in self._waiting

    async def wait(self, bell: asyncio.Event, timeout_s: float) -> None:
        """Until it rings, or for so long."""
        self._waiting[bell] += 1
        try:
            async with asyncio.timeout(timeout_s):
                await bell.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[bell] -= 1
            if not self._waiting[bell]:
                del self._waiting[bell]
