"""Wakes dequeues of this node that wait for a job of a topic."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from leveret.job_service.shards.topic_name import TopicName


class ReadySignals:
    """One event for each topic that a dequeue waits for, or looks for jobs of."""

    def __init__(self) -> None:
        self._events: dict[TopicName, asyncio.Event] = {}
        self._users: Counter[asyncio.Event] = Counter()  # dequeues of each event
        self._waiting: Counter[asyncio.Event] = Counter()  # those that wait

    def notify(self, topic: TopicName) -> None:
        event = self._events.pop(topic, None)
        if event is not None:
            event.set()

    def notify_all(self) -> None:
        for topic in list(self._events):
            self.notify(topic)

    @contextmanager
    def signal_for(self, topic: TopicName) -> Iterator[asyncio.Event]:
        """Give the event of a topic, which is set once, for a block that looks for jobs and waits.

        Begin the block before looking for jobs, so that no notification is missed in between.
        """
        event = self._events.setdefault(topic, asyncio.Event())
        self._users[event] += 1
        try:
            yield event
        finally:
            self._users[event] -= 1
            if not self._users[event]:  # clients may ask for any number of topics
                del self._users[event]
                if self._events.get(topic) is event:
                    del self._events[topic]

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
