"""A short load on a real broker: everything that is sent arrives, and the queues are gone after."""

import json

import pytest

from leveret.errors import Closed
from leveret.perf.__main__ import main
from leveret.perf.load import Load
from leveret.perf.run import run
from leveret.testing import broker


def test_confirmed_messages_are_received_and_no_queue_is_left() -> None:
    with broker() as url:
        load = Load(port=url.port, seconds=0.2, confirm_window=20, prefetch=10, burst=5, queues=2)
        result = run(load)
        left = [q for vhost in url.node.broker.vhosts.values() for q in vhost.queues]
    assert result.sent - 20 <= result.confirmed <= result.sent
    assert 0 < result.received <= result.sent
    assert result.latency.count > 0
    assert left == []


def test_flags_make_a_load_and_the_result_is_one_json_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with broker() as url:
        flags = f"--port {url.port} --seconds 0.2 --rate 200 --burst 1 --size 300000"
        assert main(flags.split()) == 0
    figures = json.loads(capsys.readouterr().out)
    assert 0 < figures["received"] <= figures["sent"] <= 41
    assert figures["nacked"] == 0
    assert figures["latency_us"]["p50"] <= figures["latency_us"]["p99"]


def test_broker_that_refuses_is_reported_and_leaves_nothing_running() -> None:
    with broker() as url, pytest.raises(Closed, match="406"):
        run(Load(port=url.port, seconds=0.2, queue_type="nonsense"))
