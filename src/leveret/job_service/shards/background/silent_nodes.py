"""Removes announcements of nodes that are gone, or cannot reach the shard.

An announced node may have acks that the table does not have (`sql/step_17_ack_nodes.sql`). While it
does not renew its announcement, leases that ran out stay with their jobs. A shard that was away has
old announcements of nodes that are well, and so has the shard of a topic that was moved. So the
time without a renewal counts only while this node sees the shard answer and the topic live there.

If Redis does not answer either, it may have notes of the silent node. So this takes longer then.
"""

import asyncio
import logging
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.shard import Shard, TopicStoppedError

GAP_S: Final = 2.0  # the most that counts between two looks: this machine may have stood still
LOOKED_AT: Final = 1_000  # announcements

_FIND: Final = (
    "SELECT a.namespace, a.topic, a.node, a.renewals FROM ack_nodes a"
    " LEFT JOIN topics t USING (namespace, topic)"
    " WHERE a.written_until < coalesce($1, now()) AND coalesce(t.state, 'live') = 'live'"
    " ORDER BY a.written_until LIMIT $2"
)
_REMOVE: Final = "SELECT leveret_remove_silent($1, $2, $3, $4)"

log = logging.getLogger(__name__)


class _Announcement(NamedTuple):
    namespace: str
    topic: str
    node: UUID
    renewals: int


class SilentNodes:
    """Watches the announcements on one shard while leases or jobs are due there."""

    def __init__(self, shard: Shard, settings: ShardsSettings) -> None:
        self._shard = shard
        self._settings = settings
        # The announcements of the last look, and for how long each was not renewed.
        self._silent_s: dict[_Announcement, float] = {}
        self._looked_s = 0.0  # when that was, by the clock of the event loop
        self._failures = 0  # how often the shard had been away by then

    async def look(self, given: datetime | None, is_redis_up: bool) -> None:
        """Remove the announcements that were not renewed for too long."""
        rows = await self._shard.fetch(_FIND, given, LOOKED_AT)
        now_s = asyncio.get_running_loop().time()
        if self._failures != self._shard.health.failures:
            self._failures = self._shard.health.failures
            self._silent_s.clear()
        passed_s = min(now_s - self._looked_s, GAP_S)
        self._looked_s = now_s
        found = [_Announcement(*row) for row in rows]
        self._silent_s = {
            each: self._silent_s[each] + passed_s if each in self._silent_s else 0.0
            for each in found
        }
        most_s = self._settings.silent_s
        if not is_redis_up:
            most_s = max(most_s, self._settings.silent_without_redis_s)
        for each, silent_s in self._silent_s.items():
            if silent_s >= most_s:
                await self._remove(each)

    async def _remove(self, silent: _Announcement) -> None:
        log.warning(
            "node %s is silent on %s: leases of %s that ran out wait for its acks no more",
            silent.node,
            self._shard.name,
            silent.topic,
        )
        try:
            await self._shard.fetch(_REMOVE, *silent)
        except TopicStoppedError:
            log.info("the announcement stays: %s is being moved", silent.topic)
