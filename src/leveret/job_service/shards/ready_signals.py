"""Wakes dequeues of this node that wait for a job of a topic."""

import asyncio
from collections import Counter
from typing import Final

from leveret.job_service.shards.topic_name import TopicName

SIGNALS_MAX: Final = 100_000


class ReadySignals:
    """One event for each topic that a dequeue waits for."""

    def __init__(self) -> None:
        self._events: dict[TopicName, asyncio.Event] = {}
        self._waiting: Counter[asyncio.Event] = Counter()  # waiting dequeues of each event

    def notify(self, topic: TopicName) -> None:
        event = self._events.pop(topic, None)
        if event is not None:
            event.set()

    def notify_all(self) -> None:
        for topic in list(self._events):
            self.notify(topic)

    def signal_for(self, topic: TopicName) -> asyncio.Event:
        """Return the event of a topic, which is set once.

        Get it before looking for jobs, so that no notification is missed in between.
        """
        if len(self._events) >= SIGNALS_MAX:
            self._events.clear()  # waiting dequeues look again by themselves
        return self._events.setdefault(topic, asyncio.Event())

    def is_awaited(self, topic: TopicName) -> bool:
        """Return whether a dequeue waits for a job of a topic now."""
        return self._events.get(topic) in self._waiting

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait until the event is set, or for `timeout_s`."""
        self._waiting[event] += 1
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[event] -= 1
            if not self._waiting[event]:
                del self._waiting[event]
