"""Removes announcements of nodes that are gone, or cannot reach the shard.

An announced node may have acks that the table does not have (`sql/step_17_ack_nodes.sql`). While it
does not renew its announcement, leases that ran out stay with their jobs. A shard that was away has
old announcements of nodes that are well. So an announcement is removed only if it has stayed the
same for a while in which the shard has always answered this node.
"""

import asyncio
import logging
from datetime import datetime
from typing import Final

from leveret.job_service.shards.shard import Shard

GAP_S: Final = 2.0  # between two looks, after which the time begins anew
LOOKED_AT: Final = 1_000  # announcements

_FIND: Final = (
    "SELECT * FROM ack_nodes WHERE written_until < coalesce($1, now())"
    " ORDER BY written_until LIMIT $2"
)
_REMOVE: Final = (
    "DELETE FROM ack_nodes WHERE namespace = $1 AND topic = $2 AND node = $3 AND written_until = $4"
)

log = logging.getLogger(__name__)


class SilentNodes:
    """Watches the announcements on one shard while leases wait for them."""

    def __init__(self, shard: Shard, silent_s: float) -> None:
        self._shard = shard
        self._silent_s = silent_s
        # The announcements of the last look, and since when each is the same, by the clock of the
        # event loop.
        self._since_s: dict[tuple[object, ...], float] = {}
        self._looked_s = 0.0

    async def look(self, given: datetime | None) -> None:
        """Remove the announcements that were not renewed for too long."""
        rows = await self._shard.fetch(_FIND, given, LOOKED_AT)
        now_s = asyncio.get_running_loop().time()
        before = self._since_s if now_s - self._looked_s <= GAP_S else {}
        found = [tuple(row) for row in rows]
        self._since_s = {each: before.get(each, now_s) for each in found}
        self._looked_s = now_s
        for each, since_s in self._since_s.items():
            if now_s - since_s >= self._silent_s:
                log.warning(
                    "node %s is silent on %s: leases of %s that ran out wait for its acks no more",
                    each[2],
                    self._shard.name,
                    each[1],
                )
                await self._shard.fetch(_REMOVE, *each)
