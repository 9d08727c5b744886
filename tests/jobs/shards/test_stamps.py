"""Databases know which shard they are: a node with another order, or another secret, is refused."""

import asyncio

import pytest
from msgspec import structs

from leveret.errors import ConfigError
from leveret.job_service.shards import ShardsStore
from tests.jobs.shards.deployment import QUICK, Deployment, new
from tools.services import Postgres

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")


async def refused_start(store: ShardsStore) -> str:
    with pytest.raises(ConfigError) as refusal:
        await store.start()
    return str(refusal.value)


def test_shards_in_another_order_refuse_the_start(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node("a") as store:
            await store.enqueue([new()])
            turned = deployment.at(dsns=deployment.dsns[::-1])
            reason = await refused_start(turned.store("b"))
            assert "shard 0 (" in reason and "is shard 1 of the other nodes" in reason
        async with deployment.node("b") as again:
            assert len(await again.dequeue("n", "t", 1, None, 0)) == 1

    asyncio.run(main())


def test_a_shard_of_another_cluster_refuses_the_start(
    deployment: Deployment, apart: Deployment
) -> None:
    async def main() -> None:
        async with deployment.node("a"), apart.node("b"):
            pass
        mixed = deployment.at(dsns=[deployment.dsns[0], apart.dsns[1]])
        assert "belongs to another cluster than shard" in await refused_start(mixed.store("c"))

    asyncio.run(main())


@pytest.mark.parametrize("given", [slice(1), slice(None, None, -1)], ids=["fewer", "turned"])
def test_a_node_that_is_refused_leaves_no_log_behind(
    deployment: Deployment, postgres: Postgres, given: slice
) -> None:
    """The shards would keep the flush marks of its log for weeks, for each try to start."""

    async def main() -> None:
        third = deployment.at(dsns=[*deployment.dsns, new_dsn])
        async with third.node("a"):
            pass
        wrong = third.at(dsns=[third.dsns[0], *third.dsns[1:][given]])
        await refused_start(wrong.store("b"))
        assert await third.is_empty("origins")

    with postgres.databases(1) as (new_dsn,):
        asyncio.run(main())


def test_a_further_database_may_be_given(deployment: Deployment) -> None:
    async def main() -> None:
        one = deployment.at(dsns=deployment.dsns[:1])
        async with one.node("a"):
            pass
        async with deployment.node("a"):
            pass
        rows = await deployment.rows("SELECT cluster, shard FROM stamps")
        assert [row["shard"] for row in rows] == [0, 1]
        assert rows[0]["cluster"] == rows[1]["cluster"]

    asyncio.run(main())


def test_nodes_with_different_secrets_do_not_run_together(deployment: Deployment) -> None:
    ours = structs.replace(QUICK, secret_digest="one")
    theirs = structs.replace(QUICK, secret_digest="two")

    async def main() -> None:
        async with deployment.node("a", settings=ours):
            async with deployment.node("b", settings=ours):
                pass
            reason = await refused_start(deployment.store("c", settings=theirs))
            assert "jobs_token_secret: the other nodes have another secret" in reason
        async with deployment.node("c", settings=theirs):  # the secret of all nodes was changed
            pass

    asyncio.run(main())


def test_a_node_that_has_signed_off_does_not_report_again(deployment: Deployment) -> None:
    """Otherwise it would count as running for a minute, and its log as lost later."""

    async def main() -> None:
        async with deployment.node() as store:
            await store._sweeper.leave()
            for shard in store._shards:  # a round of the task that runs until the node is closed
                await store._sweeper._renew(shard)
            assert await deployment.is_empty("origins")

    asyncio.run(main())
