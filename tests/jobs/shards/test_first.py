import asyncio

from leveret.jobs.service.items import Handle
from leveret.jobs.service.store import Outcome
from tests.jobs.shards.nodes import Place, drain, new


def test_a_job_goes_in_and_out(place: Place) -> None:
    async def main() -> None:
        async with place.node() as store:
            ids = await store.enqueue([new(payload=b"1", priority=5), new(payload=b"2")])
            jobs = await store.dequeue("n", "t", 10, None, 0)
            assert [job.payload for job in jobs] == [b"2", b"1"]
            assert sorted(job.id for job in jobs) == sorted(ids)
            handles = [Handle(job.id, job.token) for job in jobs]
            assert await store.ack("n", "t", handles) == [Outcome.DONE] * 2
            assert await store.ack("n", "t", handles) == [Outcome.UNKNOWN] * 2
            assert await drain(store, "t") == []

    asyncio.run(main())
