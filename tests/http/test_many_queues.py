"""A list of ten thousand queues is complete, and the broker keeps working meanwhile."""

import asyncio
import gc
import gzip
import json
import statistics
import threading
import time
from collections.abc import Iterator

import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask_whole
from tests.http.management import Api

QUEUES = 10_000
# CPU time that one round of the loop may take, as a share of that of the whole list.
ROUND_SHARE_MAX = 1 / 3
ROUND_USUAL_SHARE_MAX = 1 / 10


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        done = threading.Event()

        def declare() -> None:
            node = server.node
            with node.view.turn():
                vhost = node.broker.vhost("/")
                for number in range(QUEUES):
                    vhost.declare_queue(f"queue.{number:05}", durable=False, arguments={})
            done.set()

        server.node.turns._loop.call_soon_threadsafe(declare)
        assert done.wait(60)
        # As `leveret serve` does: collecting the objects of pytest would be counted as the list.
        gc.collect()
        gc.freeze()
        yield server
        gc.unfreeze()


class Rounds:
    """Measure the CPU time of each round of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last = 0.0
        self._is_over = False
        self.found: list[float] = []

    def __enter__(self) -> "Rounds":
        self._loop.call_soon_threadsafe(self._tick)
        return self

    def _tick(self) -> None:
        now = time.thread_time()
        if self._last:
            self.found.append(now - self._last)
        self._last = now
        if not self._is_over:
            self._loop.call_soon(self._tick)

    def __exit__(self, *_: object) -> None:
        self._is_over = True


@pytest.mark.parametrize(
    "query", ["", "?columns=name,messages", "?sort=messages", "?disable_stats=true"]
)
def test_whole_list_is_made_in_slices_between_which_the_broker_works(
    server: RunningBroker, query: str
) -> None:
    api = Api(server)
    with Rounds(server.node.turns._loop) as rounds:
        answer = api.ask("GET", f"queues{query}")
    assert len(json.loads(answer.data)) == QUEUES
    longest, whole = sorted(rounds.found)[-20:], sum(rounds.found)
    print(f"{whole * 1000:.0f} ms in all, longest {[round(s * 1000, 1) for s in longest]} ms")
    assert longest[-1] < whole * ROUND_SHARE_MAX
    assert statistics.median(longest) < whole * ROUND_USUAL_SHARE_MAX


def test_page_of_many(server: RunningBroker) -> None:
    page = Api(server).get("queues?page=20&page_size=500&sort=name&sort_reverse=true&columns=name")
    assert (page["total_count"], page["page_count"], page["item_count"]) == (QUEUES, 20, 500)
    assert page["items"][-1] == {"name": "queue.00000"}
    found = Api(server).get("queues?name=0999.$&use_regex=true&columns=name")
    assert len(found) == 10


def test_totals_of_many(server: RunningBroker) -> None:
    assert Api(server).get("overview")["object_totals"]["queues"] == QUEUES


@pytest.mark.parametrize(
    "query", ["columns=name,messages", "page=1&page_size=500", "name=queue.0000"]
)
def test_a_long_list_is_compressed_for_clients_that_accept_it(
    server: RunningBroker, query: str
) -> None:
    path = f"/api/queues?{query}"
    _, plain, _ = ask_whole(server, "GET", path)
    status, packed, headers = ask_whole(server, "GET", path, headers={"Accept-Encoding": "gzip"})
    assert (status, headers["Content-Encoding"], headers["Vary"]) == (
        200,
        "gzip",
        "Accept-Encoding",
    )
    assert len(packed) < len(plain) / 5
    assert json.loads(gzip.decompress(packed)) == json.loads(plain)
