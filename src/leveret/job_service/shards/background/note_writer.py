"""Writes the notes in Redis to the shards: prefetched jobs that were handed out, or acked.

The ack of a prefetched job is answered when Redis has a note of it. The row of the job is deleted a
moment later, with many others. These rules keep an acked job from being delivered again:

- A node takes back leases that ran out only after it has written the notes that Redis had then
  (`leases_noted_at`).
- An ack is noted only while its lease lasts for another `ACK_LEFT_MS`. So no note comes later than
  that for a lease that may be taken back.
- A node keeps the notes of the acks that it has accepted until it has written them itself. So a
  Redis that loses its memory loses no ack. While they cannot be written, the node puts them into
  Redis again, so that other nodes find them when the shard is back.
- While the notes of a topic cannot be written, its acks are not noted.

A node that is killed leaves its notes in Redis, where all nodes find them. Notes can be written any
number of times.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from leveret.errors import JobsError
from leveret.job_model import Handle
from leveret.job_service.shards import statements
from leveret.job_service.shards.prefetched_job import QuickAcks, decode_ack, decode_note, encode_ack
from leveret.job_service.shards.redis.prefetch_client import NOTES_MAX, PrefetchClient
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.shard import Shard, TopicStoppedError
from leveret.job_service.shards.sql.loader import ACK_LEFT_MS, PREFETCH_MARGIN_MS
from leveret.job_service.shards.tables import Tables
from leveret.job_service.shards.timestamps import to_ms, to_timestamp
from leveret.job_service.shards.topic_name import TopicName

NOTED_TOGETHER: Final = 100  # acks of one call; for more, a transaction costs little
WRITTEN_AT: Final = 500  # acks of a topic that this node has noted: they are written at once
KEPT_MAX: Final = 10_000  # acks of a topic that this node has noted; further acks ask the shard

log = logging.getLogger(__name__)


class NoteWriter:
    """Writes notes, and keeps those of the acks that this node has accepted."""

    def __init__(self, redis: PrefetchClient, routes: ShardMap, tables: Tables) -> None:
        self._redis = redis
        self._routes = routes
        self._tables = tables
        # By topic: the notes that are not known to be in the table, and when each was accepted, by
        # the clock of the event loop.
        self._kept: dict[TopicName, dict[bytes, float]] = {}
        self.are_many = asyncio.Event()  # notes of a topic should be written at once
        self.is_stopping = False  # if True, acks are not noted

    @property
    def topics(self) -> list[TopicName]:
        """Return the topics with notes of this node."""
        return list(self._kept)

    def acks_of(self, topic: TopicName, handles: list[Handle]) -> QuickAcks | None:
        """Return the acks of jobs as notes for Redis; None if the shard must be asked."""
        settings = self._tables.settings
        if not 0 < len(handles) <= NOTED_TOGETHER or self.is_stopping:
            return None
        is_usable = self._redis.is_up and not self._redis.health.write_refusal
        if settings.sync == "always" or not is_usable:
            return None
        shard = self._routes.shard_of(topic)
        if not (shard.is_up and shard.is_fresh) or self._is_late(topic):
            return None
        notes = [encode_ack(each.id, each.token) for each in handles if each.token is not None]
        return QuickAcks(notes, ACK_LEFT_MS) if len(notes) == len(handles) else None

    def _is_late(self, topic: TopicName) -> bool:
        """Return whether notes of this node are not written although it is time."""
        kept = self._kept.get(topic)
        if not kept:
            return False
        age_s = asyncio.get_running_loop().time() - next(iter(kept.values()))
        return age_s > self._tables.settings.unwritten_s or len(kept) >= KEPT_MAX

    def keep(self, topic: TopicName, notes: Iterable[bytes]) -> None:
        """Keep the notes of acks that Redis has accepted, until they are written."""
        kept = self._kept.setdefault(topic, {})
        kept.update(dict.fromkeys(notes, asyncio.get_running_loop().time()))
        if not kept:
            del self._kept[topic]
        elif len(kept) >= WRITTEN_AT:
            self.are_many.set()

    async def write(self, topic: TopicName, *, is_urgent: bool = True) -> None:
        """Write the notes of a topic that there are now.

        `is_urgent`: wait while the topic is being moved. Else raise TopicStoppedError then.
        """
        is_more = True
        while is_more:
            handed, acked = await self._read(topic)
            own = list(self._kept.get(topic, ()))[:NOTES_MAX]
            if not (handed or acked or own):
                return
            is_more = max(len(handed), len(acked), len(own)) == NOTES_MAX
            done = list(dict.fromkeys([*acked, *own]))
            await self._write(topic, handed, done, is_urgent)
            self._forget(topic, done)
            try:
                await self.remove(topic, handed, done)
            except JobsError as error:
                log.info("notes of %s are written again later: %s", topic[1], error)
                return

    async def remove(self, topic: TopicName, handed: list[bytes], acked: list[bytes]) -> None:
        """Remove notes from Redis, because the table has them."""
        if self._redis.is_up:
            shard = self._routes.shard_of(topic)
            now_ms = shard.health.server_time_ms(self._tables.clock.now_ms())
            await self._redis.remove_noted(topic, now_ms, handed, acked)

    async def _read(self, topic: TopicName) -> tuple[list[bytes], list[bytes]]:
        """Return the notes in Redis; none if Redis does not answer."""
        if self._redis.is_up:
            try:
                return await self._redis.notes(topic)
            except JobsError as error:
                log.info("notes of %s cannot be read: %s", topic[1], error)
        return [], []

    async def _write(
        self, topic: TopicName, handed: list[bytes], acked: list[bytes], is_urgent: bool
    ) -> None:
        # In the order of the ids: nodes that write the same notes wait for each other.
        done = dict(sorted(map(decode_ack, acked)))
        given = [each for each in map(decode_note, handed) if each[0] not in done]
        columns = [list(column) for column in zip(*given, strict=True)] or [[], [], []]
        words = (list(done), list(done.values()), *columns)
        if is_urgent:
            deadline_s = self._tables.settings.deadline_s
            await self._routes.ask(topic, deadline_s, statements.WRITE_NOTES, *words)
        else:
            shard = self._routes.shard_of(topic)
            await shard.fetch(statements.WRITE_NOTES, *topic, *words)
        if given:
            first_ms = to_ms(min(end for _, _, end in given)) + PREFETCH_MARGIN_MS
            self._tables.expect_due(self._routes.shard_of(topic), first_ms)

    async def note_again(self, shard: Shard) -> None:
        """Put notes of this node into Redis that it has lost, while they cannot be written."""
        for topic in self.topics:
            is_late = self._routes.is_on(topic, shard) and self._is_late(topic)
            if is_late and self._redis.is_up:
                try:
                    _, acked = await self._redis.notes(topic)
                    left = self._kept.get(topic, {}).keys() - acked
                    if left and len(acked) < NOTES_MAX:
                        await self._redis.note_acks(topic, list(left))
                except JobsError as error:
                    log.info("acks of %s are not noted again: %s", topic[1], error)

    def _forget(self, topic: TopicName, notes: list[bytes]) -> None:
        """Forget notes of this node that the table has."""
        kept = self._kept.get(topic)
        if kept is None:
            return
        for note in notes:
            kept.pop(note, None)
        if not kept:
            del self._kept[topic]

    def leases_noted_at(self, shard: Shard) -> datetime:
        """Return the last end of a lease that may be taken back if notes are read now."""
        now_ms = shard.health.server_time_ms(self._tables.clock.now_ms())
        return to_timestamp(now_ms + PREFETCH_MARGIN_MS)

    async def write_for_wake(self, shard: Shard) -> tuple[datetime, list[TopicName]]:
        """Write the notes of a shard before leases that ran out are taken back.

        Return what `leases_noted_at` does, and the topics whose notes were not written there.
        """
        noted_at = self.leases_noted_at(shard)
        topics = await self._noted_topics()
        return noted_at, [topic for topic in topics if not await self._is_written(topic, shard)]

    async def _is_written(self, topic: TopicName, shard: Shard) -> bool:
        # A topic that the map of this node has elsewhere may have come to the shard meanwhile.
        if not self._routes.is_on(topic, shard):
            return False
        try:
            await self.write(topic, is_urgent=False)
        except (JobsError, TopicStoppedError) as error:
            log.info("leases of %s are not taken back now: %s", topic[1], error)
            return False
        return True

    async def _noted_topics(self) -> set[TopicName]:
        """Return all topics that may have notes."""
        found = set(self._kept)
        if self._redis.is_up:
            try:
                found |= set(await self._redis.prefetched_topics())
            except JobsError as error:
                log.info("leases that ran out are taken back without the notes in Redis: %s", error)
        return found
