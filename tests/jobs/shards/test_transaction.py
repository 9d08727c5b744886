"""Transactions whose server falls silent or closes the connection in the middle."""

import asyncio
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards.connecting import KEEPALIVE_S
from leveret.job_service.shards.transaction import transaction
from tests.jobs.shards.deployment import QUIET, WITHIN_S, Deployment, refuses
from tests.proxy import proxy
from tools.services import Postgres

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

ONE = "SELECT 1 AS one"


def test_a_server_that_falls_silent_in_a_transaction_ends_the_call_by_its_deadline(
    deployment: Deployment, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with proxy(postgres.port) as line:
            dsns = [dsn.replace(f":{postgres.port}/", f":{line.port}/") for dsn in deployment.dsns]
            async with deployment.at(dsns=dsns).node(settings=QUIET) as store:
                shard = store._shards[0]

                async def stalled(connection: Any) -> None:
                    async with transaction(connection):
                        line.stall()
                        await connection.fetch(ONE)

                short = structs.replace(QUIET, deadline_s=0.2)
                with monkeypatch.context() as patch:
                    patch.setattr(shard, "_settings", short)
                    async with asyncio.timeout(WITHIN_S):
                        reason = await refuses(shard.run(stalled), JobsUnavailableError)
                assert reason == f"{shard.name} does not answer: no answer within the deadline"
                line.flow()
                await shard.probe()
                assert (await shard.fetch(ONE))[0]["one"] == 1

    asyncio.run(main())


def test_a_connection_that_ends_in_a_transaction_leaves_the_cause_of_the_server(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            shard = store._shards[0]

            async def ended(connection: Any) -> None:
                async with transaction(connection):
                    pid = connection.get_server_pid()
                    await deployment.rows("SELECT pg_terminate_backend($1)", pid, shard=0)
                    await connection.fetch(ONE)

            reason = await refuses(shard.run(ended), JobsUnavailableError)
            assert "Transaction" not in reason and "state" not in reason
            await shard.probe()

    asyncio.run(main())


def test_an_error_of_the_driver_itself_is_told_as_the_end_of_the_connection(
    deployment: Deployment,
) -> None:
    """asyncpg fails so between the server's last words and the end of the stream."""

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            shard = store._shards[0]

            async def ended(connection: Any) -> None:
                async with transaction(connection):
                    raise asyncpg.InternalClientError("cannot switch to state 11")

            reason = await refuses(shard.run(ended), JobsUnavailableError)
            assert reason == f"{shard.name} does not answer: the server ended the connection"
            await shard.probe()

    asyncio.run(main())


def test_a_statement_that_is_refused_rolls_back_and_keeps_the_connection(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            shard = store._shards[0]
            used: list[Any] = []

            async def refused(connection: Any) -> None:
                used.append(connection)
                async with transaction(connection):
                    await connection.execute("CREATE TABLE undone ()")
                    await connection.execute("SELECT 1 / 0")

            assert "division by zero" in await refuses(shard.run(refused))

            async def is_undone(connection: Any) -> bool:
                assert connection is used[0]
                return await connection.fetchval("SELECT to_regclass('undone')") is None

            assert await shard.run(is_undone)

    asyncio.run(main())


def test_a_read_that_took_too_long_leaves_a_connection_that_works(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            shard = store._shards[0]
            reason = await refuses(shard.fetch_within(10, "SELECT pg_sleep(3600)"))
            assert reason == f"{shard.name} has too many jobs to read them in 10 ms"
            free = list(shard._free)
            assert [await each.fetchval(ONE) for each in free] == [1] * len(free)
            assert shard.is_up

    asyncio.run(main())


def test_postgresql_ends_what_a_frozen_node_has_begun(deployment: Deployment) -> None:
    """Otherwise its locks would stop the other nodes as long as it is frozen."""

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            shard = store._shards[0]
            wanted = await shard.fetch(
                "SELECT name, setting::INT FROM pg_settings"
                " WHERE name IN ('idle_in_transaction_session_timeout', 'statement_timeout')"
            )
            deadline_ms = round(QUIET.deadline_s * 1000)
            assert [row["setting"] for row in wanted] == [deadline_ms, deadline_ms]
            idle = await shard.fetch("SHOW tcp_keepalives_idle")
            assert int(idle[0]["tcp_keepalives_idle"]) == KEEPALIVE_S

    asyncio.run(main())
