"""Leases of queues: epochs stay the same until they are acked; bulk reads change nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pika
import pyarrow as pa
import pytest

from leveret.http.streams.leases import merge_into_runs
from leveret.storage.disk import Disk
from leveret.testing import ManualClock
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, ask_whole
from tests.http.stream_client import on_loop

PATH = "/api/queues/%2F/q"


@contextmanager
def serving(folder: Path) -> Iterator[RunningBroker]:
    with broker(http=True, disk=Disk(folder)) as server:
        yield server


@contextmanager
def channel(server: RunningBroker) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    opened = connection.channel()
    opened.confirm_delivery()
    yield opened
    connection.close()


def fill(
    server: RunningBroker, first: int, end: int, *, mode: int = 2, **arguments: object
) -> None:
    with channel(server) as opened:
        opened.queue_declare("q", durable=True, arguments=arguments)
        for number in range(first, end):
            given = pika.BasicProperties(
                delivery_mode=mode, headers={"n": number}, message_id=str(number)
            )
            opened.basic_publish("", "q", b"body %d" % number, given)


def take(server: RunningBroker, epoch: int, count: int, reader: str = "r") -> dict[str, Any]:
    status, body = ask(server, "POST", f"{PATH}/leases/{reader}/{epoch}?count={count}")
    assert status == 200, body
    found: dict[str, Any] = body
    return found


def read(server: RunningBroker, epoch: int, query: str = "") -> bytes:
    path = f"{PATH}/leases/r/{epoch}{query}"
    status, data, _ = ask_whole(server, "GET", path, login="guest:guest")
    assert status == 200, data
    return data


def table(data: bytes) -> pa.Table:
    found = pa.ipc.open_stream(data).read_all()
    found.validate(full=True)
    return found


def counts(server: RunningBroker) -> tuple[int, int]:
    """Return the counts of messages ready and in flight."""
    queue = server.node.broker.vhosts["/"].queues["q"]
    found: tuple[int, int] = on_loop(
        server, lambda: (int(queue.message_count()), int(queue.unacked))
    )
    return found


def seen(server: RunningBroker) -> list[dict[str, Any]]:
    """Return all ready messages as peek shows them, without their age."""
    _, found = ask(server, "GET", f"{PATH}/peek?count=100")
    return [{key: item[key] for key in item if key != "age_ms"} for item in found]


def test_epoch_has_messages_in_order_with_all_columns(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 10)
        assert take(server, 1, 4) == {"epoch": 1, "messages": 4, "bytes": 24, "missing": 0}
        found = table(read(server, 1))
        assert found["body"].to_pylist() == [b"body %d" % n for n in range(4)]
        assert found["offset"].to_pylist() == [0, 1, 2, 3]
        assert found["stream"].to_pylist() == ["q"] * 4
        assert found["message_id"].to_pylist() == ["0", "1", "2", "3"]
        assert found["headers"].to_pylist()[2] == [("n", "2")]
        assert len(set(found["broker_id"].to_pylist())) == 4
        assert None not in found["timestamp"].to_pylist()
        part = table(read(server, 1, "?from=1&to=3&columns=body,offset"))
        assert part.to_pydict() == {"body": [b"body 1", b"body 2"], "offset": [1, 2]}
        assert counts(server) == (6, 4)


def test_epoch_that_is_taken_again_is_the_same(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 10)
        take(server, 1, 4)
        before = read(server, 1)
        fill(server, 10, 20)
        assert take(server, 1, 100)["messages"] == 4
        assert read(server, 1) == before
        assert take(server, 2, 3)["messages"] == 3
        assert table(read(server, 2))["offset"].to_pylist() == [4, 5, 6]


def test_restart_keeps_epochs_and_their_order(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 10)
        with channel(server) as opened:  # a gap, and a message that stays in front
            opened.basic_get("q", auto_ack=True)
            opened.basic_get("q", auto_ack=True)
        take(server, 1, 3)
        take(server, 2, 2)
        ask(server, "POST", f"{PATH}/leases/r/ack?upto=1")
        before = read(server, 2)
    with serving(tmp_path) as server:
        assert counts(server) == (3, 2)
        assert read(server, 2) == before
        assert ask(server, "GET", f"{PATH}/leases/r")[1]["acked"] == 1
        with channel(server) as opened:
            _, _, body = opened.basic_get("q", auto_ack=True)
            assert body == b"body 7"
        assert ask(server, "POST", f"{PATH}/leases/r/ack?upto=2") == (200, {"messages": 2})
        assert counts(server) == (2, 0)
    with serving(tmp_path) as server:
        assert counts(server) == (2, 0)
        assert ask(server, "GET", f"{PATH}/leases/r/2")[0] == 404


def test_expired_messages_of_an_epoch_are_held_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    with broker(http=True, disk=Disk(tmp_path), clock=clock) as server:
        with channel(server) as opened:
            opened.queue_declare("q", durable=True)
            properties = pika.BasicProperties(delivery_mode=2, expiration="200")
            opened.basic_publish("", "q", b"short-lived", properties)
        assert take(server, 1, 3)["messages"] == 1
        clock.advance(minutes=5)
    with broker(http=True, disk=Disk(tmp_path), clock=clock) as server:
        assert table(read(server, 1))["body"].to_pylist() == [b"short-lived"]


def test_timeouts_of_consumers_do_not_end_a_lease(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 3, **{"x-consumer-timeout": 1000})
        take(server, 1, 3)

        def hold_for_long() -> int:
            engine = server.node.broker
            engine.on_pulse(server.node.view.now_ms() + 3_600_000)
            engine.end_turn()
            return int(engine.vhosts["/"].queues["q"].unacked)

        assert on_loop(server, hold_for_long) == 3


def test_ending_a_lease_makes_its_messages_ready_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 5)
        take(server, 1, 3)
        assert ask(server, "DELETE", f"{PATH}/leases/r") == (200, {"messages": 3})
        assert counts(server) == (5, 0)
        assert ask(server, "GET", f"{PATH}/leases") == (200, [])
        take(server, 1, 5)
        assert table(read(server, 1))["offset"].to_pylist() == [0, 1, 2, 3, 4]


def test_an_empty_queue_makes_no_epoch(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 0)
        assert take(server, 1, 5)["messages"] == 0
        fill(server, 0, 2)
        assert take(server, 1, 5)["messages"] == 2


def test_transient_messages_lost_by_a_restart_are_reported(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 2)
        fill(server, 2, 5, mode=1)
        take(server, 1, 5)
    with serving(tmp_path) as server:
        found = ask(server, "GET", f"{PATH}/leases/r")[1]["epochs"]
        assert [(e["messages"], e["missing"]) for e in found] == [(2, 3)]
        assert table(read(server, 1))["message_id"].to_pylist() == ["0", "1"]


def test_explain_and_unacked_name_the_holder(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 3)
        take(server, 1, 2)
        _, page = ask(server, "GET", f"{PATH}/unacked")
        assert {item["holder"]["connection"] for item in page["items"]} == {"lease 'r'"}
        number = page["items"][0]["id"]
        _, why = ask(server, "GET", f"{PATH}/messages/{number}/explain")
        assert why["reasons"][0]["text"].startswith("The lease 'r' has held")
        _, why = ask(server, "GET", f"{PATH}/explain")
        held = [r["details"].get("leases") for r in why["reasons"] if r["code"] == "unacked"]
        assert held == [[{"reader": "r", "messages": 2}]]


def test_deleting_a_queue_deletes_its_leases(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 3)
        take(server, 1, 2)
        with channel(server) as opened:
            opened.queue_delete("q")
        fill(server, 0, 1)
        assert ask(server, "GET", f"{PATH}/leases/r/1")[0] == 404
        assert take(server, 1, 9)["messages"] == 1
    with serving(tmp_path) as server:
        assert table(read(server, 1))["body"].to_pylist() == [b"body 0"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "leases/r/0", 400),
        ("POST", "leases/r/x", 400),
        ("POST", "leases/r/1?count=x", 400),
        ("POST", "leases/r/ack", 404),
        ("GET", "leases/nobody/1", 404),
        ("GET", "leases/nobody", 404),
    ],
)
def test_invalid_requests_are_refused_with_a_reason(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 1)
        assert ask(server, method, f"{PATH}/{path}")[0] == status


def test_queues_that_do_not_survive_a_restart_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as server, channel(server) as opened:
        opened.queue_declare("q", durable=False)
        status, body = ask(server, "POST", f"{PATH}/leases/r/1")
        assert status == 400
        assert "does not survive a restart" in body["reason"]


def test_peek_in_bulk_changes_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        fill(server, 0, 20)
        take(server, 1, 2)
        before = seen(server)
        _, numbers = ask(server, "GET", f"{PATH}/numbers")
        assert numbers == {"messages": 18, "runs": [[2, 19]]}
        wanted = {"messages": 0, "runs": [[2, 5], [18, 30]]}
        path = f"{PATH}/batches?columns=offset,body"
        _, data, _ = ask_whole(server, "POST", path, wanted, login="guest:guest")
        found = table(data)
        assert found["offset"].to_pylist() == [2, 3, 4, 5, 18, 19]
        assert found["body"].to_pylist()[-1] == b"body 19"
        assert seen(server) == before
        assert counts(server) == (18, 2)


@pytest.mark.compiled_only("leases are not compiled, and the tests above run in both forms")
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "quorum"}])
def test_random_work_over_restarts_loses_and_doubles_nothing(
    tmp_path: Path, seed: int, arguments: dict[str, object]
) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    published = acked = 0
    done: list[bytes] = []  # bodies of acked messages
    held: dict[int, bytes] = {}  # the content of each unacked epoch
    for _ in range(4):
        with serving(tmp_path) as server:
            for epoch, before in held.items():
                assert read(server, epoch) == before
            with channel(server) as opened:
                opened.queue_declare("q", durable=True, arguments=arguments)
                for _ in range(rng.randrange(60)):
                    given = pika.BasicProperties(delivery_mode=2, priority=rng.randrange(4))
                    opened.basic_publish("", "q", b"%d" % published, given)
                    published += 1
                for _ in range(rng.randrange(5)):
                    method, _, body = opened.basic_get("q", auto_ack=True)
                    done += [body] if method is not None else []
            number = max(held, default=acked) + 1
            if take(server, number, rng.randrange(1, 30))["messages"]:
                held[number] = read(server, number)
            if held and rng.random() < 0.5:
                acked = min(held)
                done += table(held.pop(acked))["body"].to_pylist()
                ask(server, "POST", f"{PATH}/leases/r/ack?upto={acked}")
    with serving(tmp_path) as server:
        ask(server, "DELETE", f"{PATH}/leases/r")
        with channel(server) as opened:
            while (found := opened.basic_get("q", auto_ack=True))[0] is not None:
                done.append(found[2])
    assert sorted(map(int, done)) == list(range(published))


def test_listing_many_numbers_yields_the_loop() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def list_them() -> list[tuple[int, int]]:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(others())
            found = await merge_into_runs([*range(50_000), *range(60_000, 100_000), 100_001])
            watching.cancel()
        return found

    assert asyncio.run(list_them()) == [(0, 49_999), (60_000, 99_999), (100_001, 100_001)]
    assert turns >= 20
