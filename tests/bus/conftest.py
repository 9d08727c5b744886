"""Fixtures: the fixture `node` runs a test of the bus against Leveret and against RabbitMQ.

RabbitMQ is Debian's package on ports and directories of its own. Where it cannot be had, that half
is skipped and says why.
"""

from __future__ import annotations

import gc
import itertools
import logging
from collections.abc import Iterator

import pytest

from tests.bus.nodes import Leveret, Node, RabbitMQ
from tools.rabbitmq import UnavailableError

_numbers = itertools.count(1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", params=["leveret", "rabbitmq"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A broker that all tests share. Each test uses names of its own."""
    try:
        found: Node = Leveret() if request.param == "leveret" else RabbitMQ()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.fixture(scope="session")
def leveret_node() -> Iterator[Node]:
    """A Leveret, for tests of features that only Leveret has."""
    found = Leveret()
    try:
        found.start()
        yield found
    finally:
        found.close()


class _Complaints(logging.Handler):
    """Notes what asyncio says about tasks that nobody ended or asked for their result."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "was destroyed" in text or "never retrieved" in text:
            self.lines.append(text)


@pytest.fixture(scope="module", autouse=True)
def no_lost_tasks() -> Iterator[None]:
    """Fail if a bus of the module left a task behind."""
    complaints = _Complaints()
    logger = logging.getLogger("asyncio")
    logger.addHandler(complaints)
    try:
        yield
        gc.collect()  # a task complains when it is destroyed
    finally:
        logger.removeHandler(complaints)
    assert not complaints.lines, complaints.lines


@pytest.fixture
def prefix() -> str:
    """A prefix of service or queue names that no other test has."""
    return f"t{next(_numbers)}"
