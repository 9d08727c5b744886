"""A broker process for the compatibility cases, and the observations of the slow ones.

`broker_process` is `leveret serve` in a process of its own, one for the session, or the broker that
LEVERET_TEST_AMQP=host:port names. Cases that wait by their nature are played side by side from the
start of the session, those that wait longest first, so that the waits hardly cost time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, cast

import pytest

from tests.compat import brokers
from tests.compat.brokers import Address
from tests.compat.case import Case, play

SLOW_S: Final = 0.3
# All of them at once would hold up the broker and each other.
SLOW_AT_ONCE: Final = 10
Observations = dict[str, Future[tuple[str, ...]]]


@pytest.fixture(scope="session")
def broker_process() -> Iterator[Address]:
    """Where the broker under test listens for AMQP."""
    if given := os.environ.get("LEVERET_TEST_AMQP"):
        host, _, port = given.rpartition(":")
        yield Address(host, int(port))
        return
    with brokers.leveret() as address:
        yield address


@pytest.fixture(scope="session")
def slow_observations(
    request: pytest.FixtureRequest, broker_process: Address
) -> Iterator[Observations]:
    """What the selected slow cases will have observed."""
    selected = [
        cast(Case, item.callspec.params["case"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and "slow_observations" in item.fixturenames
    ]
    slow = sorted(
        (case for case in selected if case.wait_s >= SLOW_S), key=lambda case: -case.wait_s
    )
    with ThreadPoolExecutor(SLOW_AT_ONCE) as pool:
        yield {case.id: pool.submit(play, case, *broker_process) for case in slow}
