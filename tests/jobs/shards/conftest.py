"""Servers for the whole session, and fresh databases for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.shards.databases import migrated
from tests.jobs.shards.deployment import Deployment
from tools.services import Postgres, RedisServer, shared_postgres, shared_redis


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    return shared_postgres()


@pytest.fixture(scope="session")
def redis_server() -> RedisServer:
    return shared_redis()


@pytest.fixture
def deployment(
    postgres: Postgres, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Deployment]:
    """Two shards without jobs and an empty Redis."""
    with migrated(postgres, 2) as dsns:
        yield Deployment(redis_server.fresh_url(), dsns, tmp_path)


@pytest.fixture
def new_deployment(
    postgres: Postgres, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Deployment]:
    """Two databases without tables and an empty Redis."""
    with postgres.databases(2) as dsns:
        yield Deployment(redis_server.fresh_url(), dsns, tmp_path)


@pytest.fixture(scope="session")
def other_postgres() -> Iterator[Postgres]:
    """A second cluster, for tests that take one away."""
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def apart(
    postgres: Postgres, other_postgres: Postgres, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Deployment]:
    """Two shards in two clusters: the second can be taken away."""
    with migrated(postgres, 1) as first, migrated(other_postgres, 1) as second:
        yield Deployment(redis_server.fresh_url(), first + second, tmp_path)


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis that a test can take away."""
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()
