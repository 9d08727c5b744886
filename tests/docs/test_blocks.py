"""The Python in documents: all of it parses and imports what exists, and most of it is run.

The blocks of a page are run in order and share their names, against a broker of the test, whose
ports stand in for 5672 and 15672. A stage has what the page takes for granted: a channel, a token.
What is not run has its reason in NOT_RUN, so that a new block is either run or thought about.
"""

import ast
import asyncio
import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pytest

import leveret.bus
from leveret.bus import Bus, fanout
from leveret.bus.testing.fake_bus import FakeBus, FakeHub
from leveret.config.option import Secret
from leveret.testing.broker import RunningBroker, broker
from tests.docs.pages import Block, blocks
from tests.jobs.service import token

pytestmark = pytest.mark.interpreted_only("documents are the same for both forms")
BLOCKS = blocks("python")
# Pages, or blocks of them by number.
NOT_RUN = {
    "docs/bus.md 2-9": "parts of programs; test_parts_of_the_page_of_the_bus_run runs each alone",
    "docs/jobs.md 2": "a worker goes on until a signal; its example is run",
    "docs/lake.md": "needs a lake; tests/spark reads what `pipeline files` prints",
    "docs/raft.md": "the order of calls, not a program",
    "docs/jobs-shards.md": "needs PostgreSQL; tests/jobs/shards/test_moving.py does it",
    "docs/spark.md": "needs Spark; tests/spark does all of it",
    "docs/security.md 0": "needs certificates; tests/tls logs in by one",
}
SECRET = "a secret of thirty-two characters"

Names = dict[str, Any]


def code_of(block: Block, text: str) -> Any:
    return compile(text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_it_parses_and_imports_what_exists(block: Block) -> None:
    code_of(block, block.text)
    missing = []
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            missing += [a.name for a in node.names if importlib.util.find_spec(a.name) is None]
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            missing += [a.name for a in node.names if not hasattr(module, a.name)]
    assert missing == []


@contextmanager
def nothing(server: RunningBroker) -> Iterator[Names]:
    yield {}


@contextmanager
def with_channel(server: RunningBroker) -> Iterator[Names]:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    channel = connection.channel()
    channel.queue_declare("watch")
    yield {"pika": pika, "channel": channel, "body": b"hare", "queue": "watch"}
    connection.close()


@contextmanager
def with_token(server: RunningBroker) -> Iterator[Names]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LEVERET_JOBS_TOKEN", token(server))
        yield {}


STAGES: dict[str, Callable[[RunningBroker], Any]] = {
    "README.md": nothing,
    "docs/bus.md": nothing,
    "docs/deduplication.md": with_channel,
    "docs/events.md": with_channel,
    "docs/jobs.md": with_token,
    "docs/moving.md": with_token,
    "docs/security.md": nothing,
    "docs/remember.md": with_channel,
    "docs/streams.md": with_channel,
    "docs/testing.md": nothing,
}


def left_out(page: str) -> set[int]:
    """Numbers of the blocks of a page that are not run."""
    found: set[int] = set()
    for name in NOT_RUN:
        about, _, numbers = name.partition(" ")
        if about == page:
            first, _, last = numbers.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def test_every_page_with_code_is_run_or_has_a_reason() -> None:
    whole = {name for name in NOT_RUN if " " not in name}
    assert {block.page for block in BLOCKS} == set(STAGES) | whole
    for page in STAGES:
        count = sum(block.page == page for block in BLOCKS)
        assert left_out(page) < set(range(count)), page


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    secret = Secret(SECRET)
    with broker(http=True, oauth2_resource_server_id="broker", oauth2_secret=secret) as found:
        yield found


@pytest.mark.parametrize("page", sorted(STAGES))
def test_code_of_a_page_runs(page: str, server: RunningBroker) -> None:
    wanted = [block for block in BLOCKS if block.page == page]
    with STAGES[page](server) as names:
        names["__name__"] = "document"
        for number, block in enumerate(wanted):
            if number not in left_out(page):
                run(code_of(block, on_test_ports(block.text, server)), names)
        for name in [name for name in names if name.startswith("test_")]:
            names[name]()


def run(code: Any, names: Names) -> None:
    found = eval(code, names)  # noqa: S307  # the documents are our own
    if isinstance(found, Coroutine):
        asyncio.run(found)


def on_test_ports(text: str, server: RunningBroker) -> str:
    text = text.replace("15672", str(server.http_port)).replace("5672", str(server.port))
    text = text.replace("ConnectionParameters(", f"ConnectionParameters(port={server.port}, ")
    return text.replace("@localhost/", f"@localhost:{server.port}/")


@dataclass
class OrderPlaced:
    """An event of the page."""

    order_id: int


@dataclass
class StockCounted:
    """Another one."""

    count: int


def register_handlers(bus: Bus) -> None:
    @bus.on(OrderPlaced)
    async def fail(event: OrderPlaced) -> int:
        return 503


def names_for(server: RunningBroker, bus: Bus) -> Names:
    own = (FakeBus, FakeHub, OrderPlaced, StockCounted, register_handlers)
    return {
        **{name: getattr(leveret.bus, name) for name in leveret.bus.__all__},
        **{each.__name__: each for each in own},
        "__name__": "document",
        "bus": bus,
        "events": [OrderPlaced(1)],
        "histogram": None,
        "pool": None,
        "layout": fanout.layout("shop-billing"),
        "url": server.url,
    }


@pytest.mark.parametrize("number", sorted(left_out("docs/bus.md")))
def test_parts_of_the_page_of_the_bus_run(number: int, server: RunningBroker) -> None:
    block = [block for block in BLOCKS if block.page == "docs/bus.md"][number]
    bus = FakeBus(fanout.layout("shop-billing"))
    names = names_for(server, bus)
    code = code_of(block, block.text)
    if code.co_flags & inspect.CO_COROUTINE:
        register_handlers(bus)
        asyncio.run(within(bus, code, names))
    else:
        run(code, names)
    for name in [name for name in names if name.startswith("test_")]:
        asyncio.run(names[name]())


async def within(bus: Bus, code: Any, names: Names) -> None:
    async with bus:
        await eval(code, names)  # noqa: S307  # the documents are our own


def test_the_fixtures_are_there_after_one_line(tmp_path: Path) -> None:
    block = next(block for block in BLOCKS if "pytest_plugins" in block.text)
    (tmp_path / "conftest.py").write_text(block.text)
    (tmp_path / "test_it.py").write_text(
        "def test_it(leveret_broker, leveret_clock) -> None:\n"
        "    assert leveret_broker.url.startswith('amqp://guest:guest@127.0.0.1:')\n"
        "    leveret_clock.advance(minutes=5)\n"
    )
    sources = str(Path(leveret.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        env={**os.environ, "PYTHONPATH": sources, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 passed" in found.stdout
