"""Writes the notes in Redis to the shards: prefetched jobs that were handed out, or acked.

The ack of a prefetched job is answered when Redis has a note of it. The row of the job is deleted a
moment later, with many others. These rules keep an acked job from being delivered again:

- A node takes back leases that ran out only after it has written the notes that Redis had then
  (`leases_noted_at`).
- An ack is noted only while its lease lasts for another `ACK_LEFT_MS`. So no note comes later than
  that for a lease that may be taken back.
- A node keeps the notes of the acks that it has accepted until it has written them itself. It
  announces itself on the shard before it accepts any (`own_acks.py`). The shard takes back no lease
  for which an announced node may have an ack. So no ack is lost if Redis loses its memory or is
  silent, however long the shard is away.
- While the notes of a topic cannot be written, its acks are not noted.

A node that is killed leaves its notes in Redis, where all nodes find them. Its announcement is
removed after a while (`silent_nodes.py`). So is that of a node that cannot reach the shard, which
puts the notes that it keeps into Redis again if Redis has lost them. Notes can be written any
number of times.
"""

import asyncio
import logging
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from leveret.errors import JobsError
from leveret.job_model import Handle
from leveret.job_service.shards import statements
from leveret.job_service.shards.background.own_acks import OwnAcks
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


class News(NamedTuple):
    """The announcement of this node, or its end, as it is written to a shard with the notes."""

    node: UUID | None
    until: datetime | None  # all its acks are written whose leases ended by then
    is_last: bool  # it withdraws its announcements up to this one


NO_NEWS: Final = News(None, None, is_last=False)


class NoteWriter:
    """Writes notes, and keeps those of the acks that this node has accepted."""

    def __init__(
        self, redis: PrefetchClient, routes: ShardMap, tables: Tables, node_run: UUID
    ) -> None:
        self._redis = redis
        self._routes = routes
        self._tables = tables
        # Identifies this run of the node: an earlier one may have left notes that must be read.
        self._node_run = node_run
        self._own: dict[TopicName, OwnAcks] = {}
        self.has_work = asyncio.Event()  # notes or an announcement should be written at once
        self.is_stopping = False  # if True, acks are not noted

    @property
    def topics(self) -> list[TopicName]:
        """Return the topics with notes of this node."""
        return [topic for topic, own in self._own.items() if len(own)]

    @property
    def own_topics(self) -> list[TopicName]:
        """Return the topics with notes or announcements of this node."""
        return list(self._own)

    @property
    def is_written(self) -> bool:
        """Return whether the tables have all acks that this node has answered, or may answer."""
        return all(own.is_idle for own in self._own.values())

    @property
    def is_redis_read(self) -> bool:
        """Return whether Redis answers, so that notes of other nodes can be written."""
        return self._redis.is_up

    def has_acked(self, topic: TopicName, handle: Handle) -> bool:
        """Return whether this node has answered an ack of a job that the table still has."""
        own = self._own.get(topic)
        if own is None or handle.token is None:
            return False
        return encode_ack(handle.id, handle.token) in own

    def acks_of(self, topic: TopicName, handles: list[Handle]) -> QuickAcks | None:
        """Return the acks of jobs as notes for Redis; None if the shard must be asked."""
        settings = self._tables.settings
        if not 0 < len(handles) <= NOTED_TOGETHER or self.is_stopping:
            return None
        is_usable = self._redis.is_up and not self._redis.health.write_refusal
        if settings.sync == "always" or not is_usable:
            return None
        shard = self._routes.shard_of(topic)
        if not (shard.is_up and shard.is_fresh and self._may_note(topic)):
            return None
        notes = [encode_ack(each.id, each.token) for each in handles if each.token is not None]
        return QuickAcks(notes, ACK_LEFT_MS) if len(notes) == len(handles) else None

    def _may_note(self, topic: TopicName) -> bool:
        """Return whether acks may be noted now. If not, plan an announcement for later ones."""
        own = self._own.get(topic)
        if own is None:
            own = self._own[topic] = OwnAcks(self._tables.settings.announced_s)
        own.ask(_now_s())
        if not own.may_note(_now_s()):
            self.has_work.set()
            return False
        return not self._is_late(own)

    def _is_late(self, own: OwnAcks) -> bool:
        """Return whether notes of this node are not written although it is time."""
        return own.age_s(_now_s()) > self._tables.settings.unwritten_s or len(own) >= KEPT_MAX

    def begin(self, topic: TopicName, shard_ms: int) -> int:
        """Note that Redis is asked for acks at a time of the shard; return a number for `end`."""
        return self._own[topic].begin(shard_ms)

    def end(self, topic: TopicName, number: int, accepted: list[bytes]) -> None:
        """Keep the notes of acks that Redis has accepted, until they are written."""
        own = self._own[topic]
        own.end(number, accepted, _now_s())
        if len(own) >= WRITTEN_AT:
            self.has_work.set()

    async def write(
        self, topic: TopicName, *, is_urgent: bool = True, is_lazy: bool = False
    ) -> None:
        """Write the notes of a topic that there are now, and renew the announcement of this node.

        `is_urgent`: wait while the topic is being moved. Else raise TopicStoppedError then.
        `is_lazy`: if there are no notes, do not renew the announcement before it is time.
        """
        own = self._own.get(topic)
        is_more = True
        while is_more:
            handed, acked = await self._read(topic)
            kept = own.first(NOTES_MAX) if own else []
            is_more = max(len(handed), len(acked), len(kept)) == NOTES_MAX
            done = list(dict.fromkeys([*acked, *kept]))
            has_notes = bool(handed or done)
            news = NO_NEWS
            if own is not None and not is_more:
                news = self._news(topic, own, is_lazy and not has_notes)
            if not has_notes and news == NO_NEWS:
                return
            await self._write(topic, handed, done, news, is_urgent)
            if has_notes:
                await self._remove_written(topic, handed, done, is_last=not is_more)

    async def _write_own(self, topic: TopicName, own: OwnAcks) -> None:
        """Write the notes that this node keeps, without asking Redis."""
        is_more = True
        while is_more:
            kept = own.first(NOTES_MAX)
            is_more = len(kept) == NOTES_MAX
            news = NO_NEWS if is_more else self._news(topic, own, is_lazy=False)
            await self._write(topic, [], kept, news, is_urgent=False)

    def _news(self, topic: TopicName, own: OwnAcks, is_lazy: bool) -> News:
        """Return what the shard must learn of this node when it has the notes that are kept."""
        if self._own.get(topic) is not own:  # another call has withdrawn the announcement
            return NO_NEWS
        if self._may_withdraw(own):
            if own.sent is None:
                del self._own[topic]
                return NO_NEWS
            return News(self._node_run, own.sent, is_last=True)
        is_due = own.must_announce(_now_s()) or (own.sent is not None and not is_lazy)
        if self.is_stopping or not is_due:
            return NO_NEWS
        until_ms = own.asked_before_ms(self._shard_ms(topic)) + PREFETCH_MARGIN_MS
        until = to_timestamp(until_ms)
        own.sent = max(until, own.sent or until)
        return News(self._node_run, until, is_last=False)

    def _shard_ms(self, topic: TopicName) -> int:
        """Return the time of the shard of a topic."""
        health = self._routes.shard_of(topic).health
        return health.server_time_ms(self._tables.clock.now_ms())

    async def _remove_written(
        self, topic: TopicName, handed: list[bytes], acked: list[bytes], is_last: bool
    ) -> None:
        """Remove notes that were written. Raise if further notes cannot be read because of that."""
        try:
            await self.remove(topic, handed, acked)
        except JobsError as error:
            if not is_last:
                raise
            log.info("notes of %s are written again later: %s", topic[1], error)

    async def remove(self, topic: TopicName, handed: list[bytes], acked: list[bytes]) -> None:
        """Remove notes from Redis, because the table has them."""
        if self._redis.is_up:
            await self._redis.remove_noted(topic, self._shard_ms(topic), handed, acked)

    async def _read(self, topic: TopicName) -> tuple[list[bytes], list[bytes]]:
        """Return the notes in Redis; none if Redis does not answer."""
        if self._redis.is_up:
            try:
                return await self._redis.notes(topic)
            except JobsError as error:
                log.info("notes of %s cannot be read: %s", topic[1], error)
        return [], []

    async def _write(
        self,
        topic: TopicName,
        handed: list[bytes],
        acked: list[bytes],
        news: News,
        is_urgent: bool,
    ) -> None:
        # In the order of the ids: nodes that write the same notes wait for each other.
        done = dict(sorted(map(decode_ack, acked)))
        given = [each for each in map(decode_note, handed) if each[0] not in done]
        columns = [list(column) for column in zip(*given, strict=True)] or [[], [], []]
        words = (list(done), list(done.values()), *columns, *news)
        asked_s = _now_s()
        if is_urgent:
            deadline_s = self._tables.settings.deadline_s
            await self._routes.ask(topic, deadline_s, statements.WRITE_NOTES, *words)
        else:
            shard = self._routes.shard_of(topic)
            await shard.fetch(statements.WRITE_NOTES, *topic, *words)
        own = self._own.get(topic)
        if own is not None:
            own.forget(acked)
            if news.is_last:
                self._on_withdrawn(topic, own, news)
            elif news != NO_NEWS:
                own.on_announced(asked_s)
        if given:
            first_ms = to_ms(min(end for _, _, end in given)) + PREFETCH_MARGIN_MS
            self._tables.expect_due(self._routes.shard_of(topic), first_ms)

    def _on_withdrawn(self, topic: TopicName, own: OwnAcks, news: News) -> None:
        """Forget a topic, unless acks of it have come meanwhile."""
        if own.sent == news.until and self._may_withdraw(own):
            del self._own[topic]

    def _may_withdraw(self, own: OwnAcks) -> bool:
        return own.is_idle and (self.is_stopping or own.may_withdraw(_now_s()))

    async def save_late(self, shard: Shard) -> None:
        """Write late notes of this node, for which leases wait. If that fails, note them again."""
        for topic, own in list(self._own.items()):
            if not (self._routes.is_on(topic, shard) and self._is_late(own)):
                continue
            try:
                await self._write_own(topic, own)
            except (JobsError, TopicStoppedError) as error:
                log.info("acks of %s are not written: %s", topic[1], error)
                await self._note_again(topic, own)

    async def _note_again(self, topic: TopicName, own: OwnAcks) -> None:
        """Put the notes that this node keeps into Redis if it has lost them."""
        if not self._redis.is_up:
            return
        try:
            missing = await self._redis.missing_acks(topic, own.first(KEPT_MAX))
            if missing:
                await self._redis.note_acks(topic, missing)
        except JobsError as error:
            log.info("acks of %s are not noted again: %s", topic[1], error)

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
        found = set(self._own)
        if self._redis.is_up:
            try:
                found |= set(await self._redis.prefetched_topics())
            except JobsError as error:
                log.info("leases that ran out are taken back without the notes in Redis: %s", error)
        return found


def _now_s() -> float:
    return asyncio.get_running_loop().time()
