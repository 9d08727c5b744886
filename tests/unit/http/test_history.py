"""The history of the node and its queues: an hour, in bounded memory."""

import asyncio
import threading

import pytest

from leveret import slices
from leveret.http.management import history
from leveret.http.management.history import KEPT_MS, History, Series
from leveret.slices import LoopShare
from leveret.testing.broker import broker
from tests.http.insight_client import ask, opened

pytestmark = pytest.mark.interpreted_only("it is not compiled")


def test_a_series_keeps_an_hour_and_both_ends_of_a_calm_time() -> None:
    series = Series(2)
    assert series.add(1_000, (1, 5))
    assert not series.add(2_000, (1, 5))
    assert not series.add(3_000, (1, 5))
    assert series.add(4_000, (2, 5))
    assert series.rows() == [[1_000, 1, 5], [3_000, 1, 5], [4_000, 2, 5]]
    assert (series.changed_ms, series.last_ms()) == (4_000, 4_000)
    for step in range(10):
        series.add(KEPT_MS + step * 1_000, (step, 0))
    assert series.rows()[0] == [4_000, 2, 5]
    assert len(series.rows()) == 11


def test_samples_of_node_and_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "QUEUES_MAX", 2)
    with broker(http=True) as server:
        channel = opened(server)
        for name in ("a", "b", "calm", "full"):
            channel.queue_declare(name)
        for name in ("a", "b", "b", "full"):
            channel.basic_publish("", name, b"x")
        channel.basic_get("b", auto_ack=True)
        kept = History(server.node.view, LoopShare(lambda: 0))
        asyncio.run(kept.sample())  # the broker is idle meanwhile
        queues = server.node.broker.vhost("/").queues
        assert len(kept) == 2, "a queue beyond the limit waits until another one is calm"
        of_b = kept.of_queue(queues["b"])
        assert of_b is not None
        assert of_b.rows()[0][1:] == [2, 1, 1, 0, 0, 1, 0]
        assert kept.of_queue(queues["calm"]) is None
        names = (*history.NODE_COUNTERS, *history.NODE_GAUGES)
        node = dict(zip(names, kept.of_node.rows()[0][1:], strict=True))
        assert (node["publish"], node["get_no_ack"], node["ready"]) == (4, 1, 3)
        assert node["memory"] > 0 and node["sockets"] == 1
        channel.connection.close()


def test_a_sample_of_many_queues_looks_at_the_clock_after_some_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # each look at the clock is followed by a rest
    many = 2_000
    rests = 0

    def count_rests() -> int:
        nonlocal rests
        rests += 1
        return 0

    with broker(http=False) as server:
        broker_of = server.node.broker
        done = threading.Event()

        def declare() -> None:
            with server.node.view.turn():
                vhost = broker_of.vhost("/")
                for number in range(many):
                    vhost.declare_queue(f"queue.{number}", durable=False, arguments={})
            done.set()

        server.node.turns._loop.call_soon_threadsafe(declare)
        assert done.wait(60)
        kept = History(server.node.view, LoopShare(count_rests))
        asyncio.run(kept.sample())  # the broker is idle meanwhile
    # The sample of the node passes all queues, and so does that of the queues.
    assert rests >= 2 * many // 256


def test_the_broker_keeps_a_history_from_its_start() -> None:
    with broker(http=True) as server:
        status, found = ask(server, "GET", "/history")
        while not found["rows"]:  # the first sample is taken beside the first requests
            status, found = ask(server, "GET", "/history")
        assert status == 200
        assert len(found["rows"][0]) == 1 + len(found["counters"]) + len(found["gauges"])
        assert found["rows"][0][0] <= found["now_ms"]
        ask(server, "PUT", "/queues/%2F/q", {})
        assert ask(server, "GET", "/queues/%2F/q/history")[1]["rows"] == []
        assert ask(server, "GET", "/queues/%2F/none/history")[0] == 404
