"""Servers for the whole session, and fresh databases for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.servers import Postgres, RedisServer
from tests.jobs.shards.nodes import Place


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def place(postgres: Postgres, redis_server: RedisServer, tmp_path: Path) -> Iterator[Place]:
    """Two empty shards and an empty Redis."""
    redis_server.wipe()
    with postgres.databases(2) as dsns:
        yield Place(redis_server.url, dsns, tmp_path)


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
) -> Iterator[Place]:
    """Two shards in two clusters: the second can be taken away."""
    redis_server.wipe()
    with postgres.databases(1) as first, other_postgres.databases(1) as second:
        yield Place(redis_server.url, first + second, tmp_path)


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis that a test can take away."""
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()
