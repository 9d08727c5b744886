"""`leveret serve` and its disk: too little free space, and durability by name."""

from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from re import Match
from typing import Any

import msgspec
import pika
import pytest

from tests.serve.test_process import serving

NEVER_THAT_MUCH = "1000000 GiB"
WITHIN_S = 60


def connect(ready: Match[str]) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters(ready[1], int(ready[2])))


def health(ready: Match[str]) -> tuple[int, Any]:
    connection = HTTPConnection(ready[3], int(ready[4]), timeout=WITHIN_S)
    connection.request("GET", "/api/health")
    answer = connection.getresponse()
    found = answer.status, msgspec.json.decode(answer.read())
    connection.close()
    return found


def test_publisher_is_blocked_and_consumer_is_not_while_the_disk_is_short(tmp_path: Path) -> None:
    reasons: list[str] = []
    with serving(tmp_path) as (_, ready), closing(connect(ready)) as first:
        channel = first.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"m", pika.BasicProperties(delivery_mode=2))
    with serving(tmp_path, "--disk-free-min", NEVER_THAT_MUCH) as (process, ready):
        publisher = connect(ready)
        publisher.add_on_connection_blocked_callback(
            lambda _, frame: reasons.append(frame.method.reason)
        )
        publisher.channel().basic_publish("", "q", b"n", pika.BasicProperties(delivery_mode=2))
        while not reasons:
            publisher.process_data_events(time_limit=WITHIN_S)
        with closing(connect(ready)) as consumer:
            body = next(consumer.channel().consume("q", inactivity_timeout=WITHIN_S))[2]
        assert body == b"m"
        status, found = health(ready)
        assert (status, found["reason"]) == (503, "low on disk")
        process.terminate()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):  # blocked, but not deaf
            publisher.process_data_events(time_limit=WITHIN_S)
    assert reasons == ["low on disk"]


def test_node_that_syncs_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, ready):
        assert health(ready) == (200, {"status": "ok", "node": "leveret", "durability": "sync"})


def test_node_that_does_not_sync_says_so_and_warns(tmp_path: Path) -> None:
    said = tmp_path / "stderr"
    with said.open("w") as stderr, serving(tmp_path, "--durability", "os", stderr=stderr) as served:
        assert health(served[1])[1]["durability"] == "os"
    (line,) = [line for line in said.read_text().splitlines() if "durability is os" in line]
    assert " level=warning " in line
