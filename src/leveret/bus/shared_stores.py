"""Stores of handled messages that processes on several machines share: PostgreSQL and Redis.

A program passes its own pool of asyncpg, or its own client of redis-py, so this module imports
neither. Time is that of the database, so that clocks of machines do not matter.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Final, Protocol

from leveret.bus.delivery import Delivery
from leveret.bus.errors import AlreadyHandledError
from leveret.bus.idempotency import DONE, KEEP_S, ClaimState, claim_key

ANSWER_S: Final = 10.0  # for one statement
_FORGET_EVERY: Final = 1_000  # claims between two deletions of old ones
_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS leveret_bus_claims (key text PRIMARY KEY, owner text NOT NULL,
        claimed timestamptz NOT NULL, ends timestamptz NOT NULL);
    CREATE INDEX IF NOT EXISTS leveret_bus_claims_claimed ON leveret_bus_claims (claimed);
"""
# One statement is atomic. It changes a claim only if it may.
_CLAIM: Final = f"""
    INSERT INTO leveret_bus_claims AS found
        VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3)
    ON CONFLICT (key) DO UPDATE
        SET owner = excluded.owner, claimed = excluded.claimed, ends = excluded.ends
        WHERE found.owner = excluded.owner
            OR (found.owner <> '{DONE}' AND found.ends <= excluded.claimed)
    RETURNING true
"""
_OWNER: Final = "SELECT owner FROM leveret_bus_claims WHERE key = $1"
_FINISH: Final = f"""
    INSERT INTO leveret_bus_claims AS found
        VALUES ($1, '{DONE}', clock_timestamp(), clock_timestamp())
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, claimed = excluded.claimed
        WHERE found.owner <> '{DONE}'
    RETURNING true
"""
_RELEASE: Final = "DELETE FROM leveret_bus_claims WHERE key = $1 AND owner = $2"
_FORGET: Final = "DELETE FROM leveret_bus_claims WHERE claimed < clock_timestamp() - $1::interval"

# Redis runs a script as one step. A done message has an empty value.
_REDIS_CLAIM: Final = """
    local owner = redis.call('GET', KEYS[1])
    if owner == '' then return 'done' end
    if owner and owner ~= ARGV[1] then return 'held' end
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 'claimed'
"""
_REDIS_RELEASE: Final = """
    if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""


class PostgresConnection(Protocol):
    """The methods of asyncpg's pool and of its connection that a store needs."""

    def fetchval(self, query: str, *args: Any) -> Awaitable[Any]: ...
    def execute(self, query: str, *args: Any) -> Awaitable[Any]: ...


class RedisClient(Protocol):
    """The methods of `redis.asyncio.Redis` that a store needs."""

    def eval(self, script: str, numkeys: int, *args: Any) -> Awaitable[Any]: ...
    def set(self, name: str, value: str, *, px: int) -> Awaitable[Any]: ...


class PostgresStore:
    """Remembers messages in the table `leveret_bus_claims` for `keep_s` seconds."""

    def __init__(self, pool: PostgresConnection, *, keep_s: float = KEEP_S) -> None:
        self._pool = pool
        self._keep = timedelta(seconds=keep_s)
        self._claims = 0

    async def create_table(self) -> None:
        """Create the table, if it is missing."""
        async with asyncio.timeout(ANSWER_S):
            await self._pool.execute(_CREATE)

    async def claim(self, key: str, owner: str, lease_s: float) -> ClaimState:
        async with asyncio.timeout(ANSWER_S):
            if await self._pool.fetchval(_CLAIM, key, owner, timedelta(seconds=lease_s)):
                await self._forget_old()
                return ClaimState.CLAIMED
            found = await self._pool.fetchval(_OWNER, key)
        return ClaimState.DONE if found == DONE else ClaimState.HELD

    async def finish(self, key: str, owner: str) -> None:
        async with asyncio.timeout(ANSWER_S):
            await self._pool.execute(_FINISH, key)

    async def finish_within(self, connection: PostgresConnection, delivery: Delivery) -> None:
        """Note in the transaction of a handler that its message was handled (an inbox).

        Then the work of the handler and this note are committed together, or neither of them.
        Raise AlreadyHandledError if the lease of this process has ended and another process has
        handled the message meanwhile; the transaction must then be rolled back.
        """
        key = claim_key(delivery.queue, delivery.message_id)
        async with asyncio.timeout(ANSWER_S):
            if not await connection.fetchval(_FINISH, key):
                raise AlreadyHandledError(f"message {delivery.message_id} was handled before")

    async def release(self, key: str, owner: str) -> None:
        async with asyncio.timeout(ANSWER_S):
            await self._pool.execute(_RELEASE, key, owner)

    async def _forget_old(self) -> None:
        self._claims += 1
        if self._claims % _FORGET_EVERY == 0:
            await self._pool.execute(_FORGET, self._keep)


class RedisStore:
    """Remembers messages in Redis for `keep_s` seconds. Each message is one key."""

    def __init__(
        self, client: RedisClient, *, keep_s: float = KEEP_S, prefix: str = "leveret:bus:claim:"
    ) -> None:
        self._client = client
        self._keep_ms = round(keep_s * 1000)
        self._prefix = prefix

    async def claim(self, key: str, owner: str, lease_s: float) -> ClaimState:
        lease_ms = max(1, round(lease_s * 1000))
        async with asyncio.timeout(ANSWER_S):
            name = self._prefix + key
            answer = await self._client.eval(_REDIS_CLAIM, 1, name, owner, str(lease_ms))
        return ClaimState(answer.decode() if isinstance(answer, bytes) else answer)

    async def finish(self, key: str, owner: str) -> None:
        async with asyncio.timeout(ANSWER_S):
            await self._client.set(self._prefix + key, DONE, px=self._keep_ms)

    async def release(self, key: str, owner: str) -> None:
        async with asyncio.timeout(ANSWER_S):
            await self._client.eval(_REDIS_RELEASE, 1, self._prefix + key, owner)
