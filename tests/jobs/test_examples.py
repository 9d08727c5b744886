"""The examples run as they are written."""

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from leveret.jobs import AsyncClient, Client, Job, TopicSettings
from leveret.testing.broker import RunningBroker, broker
from tests.jobs.service import NAMESPACE, address, token
from tools.services import shared_postgres

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OUTBOX = """
    create table outbox (
        id       bigint generated always as identity primary key,
        topic    text not null,
        payload  jsonb not null,
        priority integer not null default 0,
        run_at   timestamptz not null default now()
    );
    insert into outbox (topic, payload, priority)
        select 'refund', jsonb_build_object('order', n), -n from generate_series(1, 700) n;
    insert into outbox (topic, payload, run_at) values ('later', '{}', now() + interval '1 hour');
"""


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


def example(name: str) -> Any:
    return importlib.import_module(f"examples.{name}")


def test_all_of_them_are_run_here() -> None:
    run = {"jobs_async", "jobs_enqueue", "jobs_operate", "jobs_outbox", "jobs_worker"}
    elsewhere = {"airflow_lake"}  # tests/unit/pipeline reads it with a stand-in for Airflow
    assert {path.stem for path in EXAMPLES.glob("*.py")} - run - elsewhere == {
        path.stem
        for path in EXAMPLES.glob("bus_*.py")  # tests/bus runs whatever is there
    }


def test_jobs_are_put_in_taken_by_hand_and_operated(server: RunningBroker) -> None:
    with Client(address(server), token=token(server), namespace=NAMESPACE) as client:
        ids = example("jobs_enqueue").main(client)
        assert (len(ids), len(set(ids))) == (104, 103)

        async def by_hand() -> int:
            async with AsyncClient(
                address(server), token=token(server), namespace=NAMESPACE
            ) as other:
                done: int = await example("jobs_async").main(other)
                return done

        assert asyncio.run(by_hand()) == 101
        client.set_settings("refund", TopicSettings(retries_max=0))
        client.enqueue("refund", b"{}")
        client.nack(client.dequeue("refund")[0], "it has no order")
        lines = example("jobs_operate").main(client)
        assert "refund: 0 ready, 0 at work, 1 dead" in lines
        assert lines[-1] == "1 are ready again"
        assert client.settings("refund").retries_max == 5


def test_the_worker_does_what_was_put_in_and_stops(server: RunningBroker) -> None:
    environment = {
        **os.environ,
        "LEVERET_URL": address(server),
        "LEVERET_JOBS_TOKEN": token(server),
    }
    with Client(address(server), token=token(server), namespace=NAMESPACE) as client:
        client.enqueue("report", {"name": "May"})
        client.enqueue("refund", {"order": 10, "amount": "5 EUR"})
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "jobs_worker.py")],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stderr is not None
        said: set[str] = set()
        try:
            while not {"order 10: 5 EUR paid back\n", "report May, page 2\n"} <= said:
                line = process.stderr.readline()
                assert line, f"it ended, after {said}"
                said.add(line)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
        topics = client.stats(namespace=NAMESPACE)
        assert [(t.ready, t.leased, t.scheduled) for t in topics] == [(0, 0, 0)] * 2


def test_the_outbox_is_handed_over_once_also_after_a_crash(server: RunningBroker) -> None:
    relay = example("jobs_outbox").relay
    assert " ".join(OUTBOX.split("insert")[0].split()) in " ".join(
        example("jobs_outbox").__doc__.split()
    )

    async def hand_over(dsn: str, client: AsyncClient) -> list[int]:
        database = await asyncpg.connect(dsn)
        try:
            await database.execute(OUTBOX)
            transaction = database.transaction()
            await transaction.start()
            first = await relay(database, client)
            await transaction.rollback()  # as when it dies after the service has answered
            return [first] + [await relay(database, client) for _ in range(3)]
        finally:
            await database.close()

    async def run(dsn: str) -> tuple[list[int], list[Job]]:
        async with AsyncClient(address(server), token=token(server), namespace=NAMESPACE) as client:
            return await hand_over(dsn, client), await client.dequeue("refund", limit=1_000)

    with shared_postgres().databases(1) as (dsn,):
        counts, jobs = asyncio.run(run(dsn))
    assert counts == [500, 500, 201, 0]
    assert [job.json()["order"] for job in jobs] == list(range(700, 0, -1))
    with Client(address(server), token=token(server), namespace=NAMESPACE) as client:
        (later,) = [t for t in client.stats(namespace=NAMESPACE) if t.topic == "later"]
        assert (later.ready, later.scheduled) == (0, 1)
