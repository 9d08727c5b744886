"""Makes ids with the node number that this node has leased.

Two nodes with the same number would make the same ids. A node leases its number in Redis and renews
the lease. When the lease is over by the monotonic clock of this machine, no id is made until there
is a new lease. The shards record the owner of each number too, since Redis may lose its data during
a lease. They are asked less often than Redis, and record the owner for longer. A number is never
given back early. The shards give it to the next owner when the lease is over by the clocks of both
nodes, which may each differ by `CLOCK_SKEW_MS_MAX`. If Redis is down and slow mode is on, a shard
leases the number; each shard has its own share of the numbers that Redis never leases.

The lease of a node number has nothing to do with the leases of jobs.
"""

import asyncio
import logging
import math
import uuid
from random import Random
from typing import Any, Final

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards.redis.redis_client import RedisClient
from leveret.job_service.shards.settings import NODE_NUMBERS, NODE_NUMBERS_IN_REDIS, ShardsSettings
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.sql.loader import CLOCK_SKEW_MS_MAX
from leveret.job_service.snowflake import Snowflakes

MARGIN: Final = 0.8  # share of the duration after which a lease counts as over
TRIES: Final = 32  # numbers of a shard that are tried in one round
RECORD_LOOKS: Final = 4  # looks at a shard at rest, after which its record of a number is renewed

log = logging.getLogger(__name__)


class IdGenerator:
    """Makes ids as long as the lease of the node number holds."""

    def __init__(
        self, redis: RedisClient, shards: list[Shard], settings: ShardsSettings, random: Random
    ) -> None:
        self._redis = redis
        self._shards = shards
        self._settings = settings
        self._random = random
        self._owner = str(uuid.uuid4())
        self._snowflakes: Snowflakes | None = None
        self._shard: Shard | None = None  # the shard that leases our number, if Redis does not
        self._valid_until_s = 0.0  # by the clock of the event loop
        # When each shard has recorded our number, by the clock of the event loop.
        self._recorded_s: dict[int, float] = {}
        self._has_left = False

    @property
    def node_number(self) -> int | None:
        """Return the node number that is leased now; None where there is none."""
        return self._snowflakes.node if self._snowflakes and self._is_valid() else None

    def _is_valid(self) -> bool:
        return asyncio.get_running_loop().time() < self._valid_until_s

    def make_ids(self, count: int, now_ms: int) -> list[int]:
        """Return new ids; JobsUnavailableError without a lease, or where ids run too far ahead."""
        flakes = self._snowflakes
        if flakes is None or not self._is_valid():
            raise JobsUnavailableError("this node has lost the lease of its node number")
        if flakes.ahead_ms(now_ms) > self._settings.node_lease_ms // 4:
            raise JobsUnavailableError("this node makes ids too fast: they run ahead of the clock")
        return flakes.next_many(count, now_ms)

    async def watch(self) -> None:
        """Renew the lease, or lease a new number, until cancelled. Log each cause once.

        Without a lease no job can be enqueued. So a number is leased soon after Redis is back.
        """
        cause = ""  # why the last try failed
        renewed_s = self._settings.node_lease_ms / 4000
        while True:
            lost_s = min(self._settings.probe_s, renewed_s)
            await asyncio.sleep(renewed_s if self._is_valid() else lost_s)
            try:
                await self.renew()
                cause = ""
            except JobsUnavailableError as error:
                if str(error) != cause:
                    text = (
                        "the number of this node, which is part of every id of a job, is not"
                        " renewed: %s: if this lasts, no job can be enqueued at this node"
                    )
                    log.warning(text, error)
                cause = str(error)

    async def leave(self) -> None:
        """End the records of this node, which stops and makes no more ids."""
        self._has_left = True
        self._valid_until_s = 0.0
        for shard in self._shards:
            if shard.is_up:
                await shard.fetch(
                    "UPDATE node_ids SET expires_at = now() WHERE owner = $1", self._owner
                )

    async def renew(self) -> None:
        if self._has_left:
            return
        if self._snowflakes is None or not self._is_valid():
            await self._lease()
        elif self._shard is not None:
            await self._leave_shard(self._shard)
        else:
            await self._renew_in_redis(self._snowflakes.node)

    async def _renew_in_redis(self, number: int) -> None:
        asked_s = asyncio.get_running_loop().time()
        self._redis.require()
        if await self._redis.renew_node_number(number, self._owner, self._settings.node_lease_ms):
            if self._has_records(asked_s) or await self._is_recorded(number):
                self._extend(asked_s)
                return
        log.warning("the number %d of this node was lost in Redis: it takes another", number)
        self._valid_until_s = 0.0
        await self._lease()

    async def _lease(self) -> None:
        if self._redis.is_up:
            await self._lease_in_redis()
        elif self._settings.is_slow_mode:
            await self._lease_in_shard()
        else:
            self._redis.require()

    async def _lease_in_redis(self) -> None:
        first = self._random.randrange(NODE_NUMBERS_IN_REDIS)
        for step in range(NODE_NUMBERS_IN_REDIS):
            number = (first + step) % NODE_NUMBERS_IN_REDIS
            asked_s = asyncio.get_running_loop().time()
            if await self._redis.lease_node_number(
                number, self._owner, self._settings.node_lease_ms
            ):
                if await self._is_recorded(number):
                    self._begin(number, None, asked_s)
                    return
        raise JobsUnavailableError("all node numbers are leased")

    def _has_records(self, now_s: float) -> bool:
        """Return whether the records of this node in all shards that answer last long enough."""
        up = [shard.index for shard in self._shards if shard.is_up]
        oldest_s = min((self._recorded_s.get(index, -math.inf) for index in up), default=-math.inf)
        return now_s - oldest_s < RECORD_LOOKS * self._settings.idle_s

    async def _is_recorded(self, number: int) -> bool:
        """Return True if every shard that answers has recorded this node as the owner.

        A shard that stalls counts as down, because it must not delay the others.
        """
        self._recorded_s.clear()
        up = [shard for shard in self._shards if shard.is_up]
        asked = (self._record_in(shard, number) for shard in up)
        found = await asyncio.gather(*asked, return_exceptions=True)
        faults = [each for each in found if isinstance(each, BaseException)]
        for fault in faults:
            if not isinstance(fault, JobsUnavailableError):
                raise fault
        if len(faults) == len(found):
            raise JobsUnavailableError("no shard answers that could record the number of this node")
        return all(each for each in found if not isinstance(each, BaseException))

    def _begin(self, number: int, shard: Shard | None, asked_s: float) -> None:
        log.info("this node has leased node number %d", number)
        last_ms = self._snowflakes.last_ms if self._snowflakes else 0
        self._snowflakes = Snowflakes(number, last_ms)
        self._shard = shard
        self._extend(asked_s)

    def _extend(self, asked_s: float) -> None:
        self._valid_until_s = asked_s + self._settings.node_lease_ms / 1000 * MARGIN

    async def _lease_in_shard(self) -> None:
        share = (NODE_NUMBERS - NODE_NUMBERS_IN_REDIS) // len(self._shards)
        for shard in self._shards:
            if not shard.is_up:
                continue
            first = NODE_NUMBERS_IN_REDIS + shard.index * share
            for number in self._random.sample(range(first, first + share), min(TRIES, share)):
                asked_s = asyncio.get_running_loop().time()
                if await self._record_in(shard, number):
                    self._begin(number, shard, asked_s)
                    return
        raise JobsUnavailableError("no shard leases a node number to this node")

    async def _record_in(self, shard: Shard, number: int) -> bool:
        """Record this node as the owner of a number, until a while after the next record is due."""
        asked_s = asyncio.get_running_loop().time()
        rows: list[Any] = await shard.fetch(
            "INSERT INTO node_ids AS n VALUES ($1, $2, now() + $3 * INTERVAL '1 ms')"
            " ON CONFLICT (node) DO UPDATE SET owner = $2,"
            " expires_at = now() + $3 * INTERVAL '1 ms'"
            " WHERE n.owner = $2 OR n.expires_at < now() - $4 * INTERVAL '1 ms' RETURNING node",
            number,
            self._owner,
            self._settings.node_lease_ms + round(RECORD_LOOKS * self._settings.idle_s * 1000),
            2 * CLOCK_SKEW_MS_MAX,
        )
        if rows:
            self._recorded_s[shard.index] = asked_s
        return bool(rows)

    async def _leave_shard(self, shard: Shard) -> None:
        """Lease a number in Redis as soon as it answers; renew the shard's lease until then."""
        assert self._snowflakes is not None
        if self._redis.is_up:
            await self._lease_in_redis()
            return
        asked_s = asyncio.get_running_loop().time()
        if await self._record_in(shard, self._snowflakes.node):
            self._extend(asked_s)
