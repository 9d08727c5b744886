"""The examples run as they are written."""

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.jobs import AsyncClient, Client, TopicSettings
from leveret.testing.broker import BrokerUrl, broker
from tests.jobs.service import NAMESPACE, address, token

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def url() -> Iterator[BrokerUrl]:
    with broker(http=True) as found:
        yield found


def example(name: str) -> Any:
    return importlib.import_module(f"examples.{name}")


def test_jobs_are_put_in_taken_by_hand_and_operated(url: BrokerUrl) -> None:
    with Client(address(url), token=token(url), namespace=NAMESPACE) as client:
        ids = example("jobs_enqueue").main(client)
        assert (len(ids), len(set(ids))) == (104, 103)

        async def by_hand() -> int:
            async with AsyncClient(address(url), token=token(url), namespace=NAMESPACE) as other:
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


def test_the_worker_does_what_was_put_in_and_stops(url: BrokerUrl) -> None:
    environment = {**os.environ, "LEVERET_URL": address(url), "LEVERET_JOBS_TOKEN": token(url)}
    with Client(address(url), token=token(url), namespace=NAMESPACE) as client:
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
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
        topics = client.stats(namespace=NAMESPACE)
        assert [t.ready + t.leased + t.scheduled for t in topics] == [0, 0]
