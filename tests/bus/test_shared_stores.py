"""Stores in PostgreSQL and Redis: claims with a lease, and a note in the handler's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import asyncpg
import pytest
import redis.asyncio

from leveret.bus import (
    AlreadyHandledError,
    ClaimState,
    Delivery,
    IdempotencyStore,
    PostgresStore,
    RedisStore,
)
from leveret.bus.idempotency import claim_key
from tests.bus.stage import pytestmark_bus
from tools.services import shared_postgres, shared_redis

pytestmark = pytestmark_bus
LONG_S: Final = 600.0
WAIT_S: Final = 60.0


@pytest.fixture
def dsn() -> Iterator[str]:
    with shared_postgres().databases(1) as [found]:
        yield found


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(dsn, min_size=2, max_size=4) as opened:
        yield opened


@pytest.fixture(params=["postgres", "redis"])
async def store(request: pytest.FixtureRequest, pool: Any) -> AsyncIterator[IdempotencyStore]:
    if request.param == "redis":
        connect: Any = redis.asyncio.from_url  # has no types
        async with connect(shared_redis().fresh_url()) as client:
            yield RedisStore(client)
    else:
        made = PostgresStore(pool)
        await made.create_table()
        await made.create_table()  # a second process does it too
        yield made


async def test_one_of_many_owners_gets_the_claim(store: IdempotencyStore) -> None:
    for message in range(20):
        claims = (store.claim(f"m{message}", f"p{owner}", LONG_S) for owner in range(4))
        states = sorted(await asyncio.gather(*claims))
        assert states == [ClaimState.CLAIMED, *[ClaimState.HELD] * 3]


async def test_claim_ends_with_a_release_or_the_finish(store: IdempotencyStore) -> None:
    assert await store.claim("m", "first", LONG_S) is ClaimState.CLAIMED
    assert await store.claim("m", "first", LONG_S) is ClaimState.CLAIMED, "its own claim"
    await store.release("m", "other")
    assert await store.claim("m", "other", LONG_S) is ClaimState.HELD, "not its claim"
    await store.release("m", "first")
    assert await store.claim("m", "other", LONG_S) is ClaimState.CLAIMED
    await store.finish("m", "other")
    await store.release("m", "other")
    assert await store.claim("m", "other", LONG_S) is ClaimState.DONE


async def test_claim_of_a_dead_process_ends_with_its_lease(store: IdempotencyStore) -> None:
    assert await store.claim("m", "dead", 0.05) is ClaimState.CLAIMED
    async with asyncio.timeout(WAIT_S):
        while await store.claim("m", "second", LONG_S) is ClaimState.HELD:
            pass  # each question is a round trip
    assert await store.claim("m", "dead", LONG_S) is ClaimState.HELD


async def test_inbox_is_committed_with_the_work_of_the_handler(pool: Any) -> None:
    store = PostgresStore(pool)
    await store.create_table()
    delivery = Delivery("q", b"", "m")
    key = claim_key("q", "m")
    await store.claim(key, "first", LONG_S)
    async with pool.acquire() as connection:
        rolled_back = connection.transaction()
        await rolled_back.start()
        await store.finish_within(connection, delivery)
        await rolled_back.rollback()
        assert await store.claim(key, "other", LONG_S) is ClaimState.HELD
        async with connection.transaction():
            await store.finish_within(connection, delivery)
        await store.release(key, "first")  # a failure after the commit
        assert await store.claim(key, "other", LONG_S) is ClaimState.DONE
        with pytest.raises(AlreadyHandledError):
            async with connection.transaction():
                await store.finish_within(connection, delivery)
