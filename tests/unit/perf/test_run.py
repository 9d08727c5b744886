"""Short loads on a real broker: all messages arrive, and the queues are deleted afterwards."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from leveret.errors import ClosedError
from leveret.perf.__main__ import main
from leveret.perf.client import Client
from leveret.perf.load import Load
from leveret.perf.measurements import ProgressRow
from leveret.perf.protocol import Parser
from leveret.perf.run import run
from leveret.testing import RunningBroker, broker

pytestmark = pytest.mark.compiled_only("the parts of a load that are compiled have tests in both")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker() as found:
        yield found


def left_over(server: RunningBroker) -> list[str]:
    return [name for vhost in server.node.broker.vhosts.values() for name in vhost.queues]


def test_confirmed_messages_are_received_and_no_queue_is_left(server: RunningBroker) -> None:
    load = Load(port=server.port, seconds=0.5, confirm_window=20, prefetch=10, burst=5, queues=2)
    result = run(replace(load, consumers=2))
    assert result.sent - 20 <= result.confirmed <= result.sent
    assert result.received > 0
    assert result.latency.count > 0
    assert result.confirm_latency.count > 0
    assert left_over(server) == []


def test_counted_load_ends_when_all_is_received(server: RunningBroker) -> None:
    load = Load(
        port=server.port,
        seconds=0,
        messages=1001,
        producers=3,
        consumers=2,
        processes=2,
        prefetch=7,
        ack_every=3,
        confirm_window=50,
        sizes=(16, 0, 5000),
    )
    result = run(load)
    assert (result.sent, result.confirmed, result.received) == (1001, 1001, 1001)
    assert sorted(result.sent_each) == [333, 334, 334]
    assert sum(result.received_each) == 1001
    assert result.latency.count == 0  # an empty body has no room for a time
    assert sum(row.counts["received"] for row in result.rows) == 1001


def test_predeclared_queue_is_filled_drained_and_kept(server: RunningBroker) -> None:
    base = Load(port=server.port, queue="kept", predeclared=True, seconds=0, messages=500)
    control = Client(base, Parser())
    control.declare("kept", base)
    filled = run(replace(base, consumers=0, confirm_window=100))
    assert (filled.confirmed, filled.received) == (500, 0)
    drained = run(replace(base, producers=0, prefetch=100))
    assert (drained.sent, drained.received) == (0, 500)
    assert server.node.broker.vhost("/").queues["kept"].message_count() == 0
    control.delete("kept")
    control.close()


def test_exchange_with_keys_reaches_the_queues_that_are_bound(server: RunningBroker) -> None:
    load = Load(
        port=server.port,
        exchange="perf.topic",
        exchange_type="topic",
        routing_keys=("a.x", "b.x", "c.x"),
        binding_keys=("a.*", "c.#"),
        mandatory=True,
        seconds=0,
        messages=300,
        confirm_window=10,
    )
    result = run(load)
    assert (result.sent, result.received, result.counts["returned"]) == (300, 200, 100)
    assert "perf.topic" not in server.node.broker.vhost("/").exchanges


def test_headers_exchange_matches_the_headers_of_the_load(server: RunningBroker) -> None:
    load = Load(
        port=server.port,
        exchange="amq.headers",
        headers=(("colour", "red"),),
        binding_arguments=(("x-match", "all"), ("colour", "red")),
        seconds=0,
        messages=10,
    )
    assert run(load).received == 10


def test_stream_is_read_from_the_given_offset(server: RunningBroker) -> None:
    base = Load(
        port=server.port, queue="log", queue_type="stream", seconds=0, messages=40, burst=10
    )
    control = Client(base, Parser())
    control.declare("log", base)
    kept = replace(base, predeclared=True, prefetch=20)
    run(replace(kept, consumers=0, confirm_window=10))
    found = run(replace(kept, producers=0, stream_offset="first"))
    assert found.received == 40
    last = run(replace(kept, producers=0, stream_offset="35", messages=5))
    assert last.received == 5
    control.delete("log")
    control.close()


def test_rates_are_kept_by_both_sides(server: RunningBroker) -> None:
    load = Load(port=server.port, seconds=0.5, rate=400, burst=1, confirm_window=100)
    # Far from what goes without a limit, however late a busy machine counts.
    assert 0 < run(load).sent <= 1000
    slow = Load(port=server.port, seconds=0.5, messages=0, prefetch=10, consumer_rate=100)
    assert 0 < run(slow).received <= 500


def test_variable_load_changes_size_and_rate(server: RunningBroker) -> None:
    load = Load(
        port=server.port,
        seconds=0.6,
        burst=1,
        variable_rate=((400, 0.2), (0, 0.2)),
        variable_size=((8, 0.1), (50_000, 0.1)),
    )
    assert 0 < run(load).sent <= 1000


def test_rows_are_reported_during_the_run(server: RunningBroker) -> None:
    rows: list[ProgressRow] = []
    result = run(
        Load(port=server.port, seconds=0.5, rate=500, burst=5, interval_s=0.1), rows.append
    )
    assert 3 <= len(rows) <= 5
    assert sum(row.counts["sent"] for row in result.rows) == result.sent


def test_flags_make_a_load_and_the_result_is_one_json_object(
    server: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = f"--port {server.port} --seconds 0 --messages 20 --rate 200 --burst 1 --size 300000"
    assert main([*flags.split(), "--load", '{"queues": 2}']) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["received"] == figures["sent"] == 20
    assert figures["send_rate"] <= 1000
    assert figures["nacked"] == 0
    assert figures["latency_us"]["p50"] <= figures["latency_us"]["p99"]


@pytest.mark.parametrize("words", [["--load", "{"], ["--load", '{"x": 1}'], ["--burst", "0"]])
def test_impossible_load_is_refused_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err.startswith("leveret.perf: ")


def test_broker_that_refuses_is_reported_and_leaves_nothing_running(server: RunningBroker) -> None:
    with pytest.raises(ClosedError, match="406"):
        run(Load(port=server.port, seconds=0.2, queue_type="nonsense"))
    with pytest.raises(ClosedError, match="404"):
        run(Load(port=server.port, seconds=0.2, queue="none", predeclared=True, prefetch=1))
