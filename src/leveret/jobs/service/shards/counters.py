"""What happened to the jobs of each topic since this node started."""

from typing import Final

import msgspec

from leveret.jobs.service.shards.memory import Topic

TOPICS_MAX: Final = 100_000


class Counts(msgspec.Struct):
    """Of one topic."""

    enqueued: int = 0
    handed_out: int = 0
    acked: int = 0
    failed: int = 0
    expired: int = 0


class Counters:
    """Of all topics that this node has had to do with."""

    def __init__(self) -> None:
        self._counts: dict[Topic, Counts] = {}

    def of(self, topic: Topic) -> Counts:
        found = self._counts.get(topic)
        if found is None:
            found = Counts()
            if len(self._counts) < TOPICS_MAX:
                self._counts[topic] = found
        return found

    def topics(self) -> list[Topic]:
        return list(self._counts)
