"""The number of this node, leased, and the ids that it makes.

Two nodes with one number would make the same ids. A number is leased in Redis and renewed; when the
lease is over, by the monotonic clock of this machine, no id is made until there is a new one. The
shards note who has which number too, since Redis may lose its memory while a lease holds. A number
is never given back: the next holder comes at least one lease later, so that clocks may
differ by that much. Where Redis is down and slow mode is on, a number comes from a shard, each of
which has its own share of the numbers that Redis never leases.
"""

import asyncio
import logging
import uuid
from random import Random
from typing import Any, Final

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards.memory import Memory
from leveret.job_service.shards.settings import NODE_IDS, NODE_IDS_IN_REDIS, ShardsSettings
from leveret.job_service.shards.shard import Shard
from leveret.job_service.snowflake import Snowflakes

MARGIN: Final = 0.8  # of a lease, after which it counts as over
TRIES: Final = 32  # numbers that are asked for in one round

log = logging.getLogger(__name__)


class Numbers:
    """Makes ids as long as the lease of a number holds."""

    def __init__(
        self, memory: Memory, shards: list[Shard], settings: ShardsSettings, random: Random
    ) -> None:
        self._memory = memory
        self._shards = shards
        self._settings = settings
        self._random = random
        self._owner = str(uuid.uuid4())
        self._snowflakes: Snowflakes | None = None
        self._shard: Shard | None = None  # that leases our number, if Redis does not
        self._valid_until_s = 0.0  # by the loop's clock
        self.floor_ms = 0  # no id may be of a time before

    @property
    def number(self) -> int | None:
        """The number that is leased now."""
        return self._snowflakes.node if self._snowflakes and self._is_valid() else None

    def _is_valid(self) -> bool:
        return asyncio.get_running_loop().time() < self._valid_until_s

    def ids(self, count: int, now_ms: int) -> list[int]:
        """New ids; JobsUnavailableError while no number is leased or too many were asked for."""
        flakes = self._snowflakes
        if flakes is None or not self._is_valid():
            raise JobsUnavailableError("this node has lost the lease of its number")
        if flakes.ahead_ms(now_ms) > self._settings.node_lease_ms // 4:
            raise JobsUnavailableError("this node makes ids faster than time goes by")
        return [flakes.next(now_ms) for _ in range(count)]

    async def watch(self) -> None:
        """Renew the lease, or find a new number, as long as the node lives."""
        while True:
            await asyncio.sleep(self._settings.node_lease_ms / 4000)
            try:
                await self.renew()
            except JobsUnavailableError as error:
                log.warning("the number of this node is not renewed: %s", error)

    async def renew(self) -> None:
        if self._snowflakes is None or not self._is_valid():
            await self._lease()
        elif self._shard is not None:
            await self._leave_shard(self._shard)
        else:
            await self._renew_in_redis(self._snowflakes.node)

    async def _renew_in_redis(self, number: int) -> None:
        asked_s = asyncio.get_running_loop().time()
        self._memory.require()
        if await self._memory.renew_node(number, self._owner, self._settings.node_lease_ms):
            if await self._is_noted(number):
                self._extend(asked_s)
                return
        log.warning("the lease of number %d was lost", number)
        self._valid_until_s = 0.0
        await self._lease()

    async def _lease(self) -> None:
        if self._memory.is_up:
            await self._lease_in_redis()
        elif self._settings.is_slow_mode:
            await self._lease_in_shard()
        else:
            self._memory.require()

    async def _lease_in_redis(self) -> None:
        first = self._random.randrange(NODE_IDS_IN_REDIS)
        for step in range(NODE_IDS_IN_REDIS):
            number = (first + step) % NODE_IDS_IN_REDIS
            asked_s = asyncio.get_running_loop().time()
            if await self._memory.lease_node(number, self._owner, self._settings.node_lease_ms):
                if await self._is_noted(number):
                    self._begin(number, None, asked_s)
                    return
        raise JobsUnavailableError("all numbers of nodes are leased")

    async def _is_noted(self, number: int) -> bool:
        """Whether every shard that answers has the number as ours."""
        up = [shard for shard in self._shards if shard.is_up]
        if not up:
            raise JobsUnavailableError("no shard answers, to note the number of this node")
        return all([await self._ask_shard(shard, number) for shard in up])

    def _begin(self, number: int, shard: Shard | None, asked_s: float) -> None:
        log.info("this node is number %d", number)
        last_ms = self._snowflakes.last_ms if self._snowflakes else 0
        self._snowflakes = Snowflakes(number, max(self.floor_ms, last_ms))
        self._shard = shard
        self._extend(asked_s)

    def _extend(self, asked_s: float) -> None:
        self._valid_until_s = asked_s + self._settings.node_lease_ms / 1000 * MARGIN

    # ---- without Redis

    async def _lease_in_shard(self) -> None:
        share = (NODE_IDS - NODE_IDS_IN_REDIS) // len(self._shards)
        for shard in self._shards:
            if not shard.is_up:
                continue
            first = NODE_IDS_IN_REDIS + shard.index * share
            for number in self._random.sample(range(first, first + share), min(TRIES, share)):
                asked_s = asyncio.get_running_loop().time()
                if await self._ask_shard(shard, number):
                    self._begin(number, shard, asked_s)
                    return
        raise JobsUnavailableError("no shard leases a number to this node")

    async def _ask_shard(self, shard: Shard, number: int) -> bool:
        rows: list[Any] = await shard.fetch(
            "INSERT INTO node_ids AS n VALUES ($1, $2, now() + $3 * INTERVAL '1 ms')"
            " ON CONFLICT (node) DO UPDATE SET owner = $2,"
            " expires_at = now() + $3 * INTERVAL '1 ms'"
            " WHERE n.owner = $2 OR n.expires_at < now() RETURNING node",
            number,
            self._owner,
            self._settings.node_lease_ms,
        )
        return bool(rows)

    async def _leave_shard(self, shard: Shard) -> None:
        """Go back to a number of Redis as soon as it answers; until then renew."""
        assert self._snowflakes is not None
        if self._memory.is_up:
            await self._lease_in_redis()
            return
        asked_s = asyncio.get_running_loop().time()
        if await self._ask_shard(shard, self._snowflakes.node):
            self._extend(asked_s)
