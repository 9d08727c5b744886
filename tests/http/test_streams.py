"""Streams over HTTP: info, offsets by time, cursors, ranges as Arrow; in memory and on disk."""

from collections.abc import Iterator
from pathlib import Path

import pika
import pyarrow as pa
import pytest

from leveret.storage.disk import Disk
from leveret.testing import ManualClock, broker
from leveret.testing.broker import RunningBroker
from tests.http.stream_client import ask, ask_json, channel, declare, publish, stream_of, table


@pytest.fixture(params=["memory", "disk"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    disk = Disk(tmp_path / "data") if request.param == "disk" else None
    with broker(http=True, disk=disk) as found:
        yield found


def test_range_is_what_was_published(server: RunningBroker) -> None:
    with channel(server) as opened:
        declare(opened)
        opened.exchange_declare("orders", "topic")
        opened.queue_bind("s", "orders", "#")
        properties = pika.BasicProperties(
            content_type="text/plain", message_id="m", headers={"n": 1}, delivery_mode=2
        )
        for number in range(50):
            opened.basic_publish("orders", f"key.{number}", b"%d" % number, properties)
    found = table(server, "from=10&to=40")
    assert found["offset"].to_pylist() == list(range(10, 40))
    assert found["body"].to_pylist() == [b"%d" % n for n in range(10, 40)]
    assert found["routing_key"].to_pylist() == [f"key.{n}" for n in range(10, 40)]
    assert set(found["exchange"].to_pylist()) == {"orders"}
    assert found["headers"].to_pylist() == [[("n", "1")]] * 30
    number = int(stream_of(server).ledger.id)
    assert found["broker_id"][0].as_py() == number << 40 | 10
    assert table(server, "from=10&to=40").equals(found)


def test_range_is_cut_to_the_end_and_may_be_empty(server: RunningBroker) -> None:
    with channel(server) as opened:
        declare(opened)
        assert table(server, "from=0").num_rows == 0
        publish(opened, 0, 5)
    assert table(server, "from=3").num_rows == 2
    assert table(server, "from=3&to=99").num_rows == 2
    assert table(server, "from=3&to=3").num_rows == 0
    assert table(server, "from=3&to=1").num_rows == 0
    empty = table(server, "from=5")
    assert empty.num_rows == 0
    assert empty.schema == table(server, "from=0").schema


def test_columns_and_bytes_can_be_chosen(server: RunningBroker) -> None:
    with channel(server) as opened:
        declare(opened)
        publish(opened, 0, 5)
    assert table(server, "from=0&columns=body,offset&max_bytes=2").to_pylist() == [
        {"body": b"0", "offset": 0},
        {"body": b"1", "offset": 1},
    ]


def test_retention_answers_410_with_the_first_offset(server: RunningBroker) -> None:
    with channel(server) as opened:
        declare(opened, max_length_bytes=3000, stream_max_segment_size_bytes=1000)
        publish(opened, 0, 40, b"x" * 400)
    first = int(stream_of(server).first_offset)
    assert first > 0
    status, body = ask_json(server, f"s/batches?from={first - 1}")
    assert status == 410
    assert (body["error"], body["first_offset"]) == ("gone", first)
    assert f"offset {first - 1}" in body["reason"]
    assert table(server, f"from={first}")["offset"].to_pylist() == list(range(first, 40))


@pytest.mark.parametrize(
    "path, status, reason",
    [
        ("s/batches?from=6", 416, "the stream ends with offset 4"),
        ("s/batches", 400, "'from' must be"),
        ("s/batches?from=-1", 400, "'from' must be"),
        ("s/batches?from=x", 400, "'from' must be"),
        ("s/batches?from=0&to=1e3", 400, "'to' must be"),
        ("s/batches?from=0&max_bytes=ten", 400, "'max_bytes' must be"),
        ("s/batches?from=0&columns=offset,nothing", 400, "no column 'nothing'"),
        ("s/batches?from=0&columns=", 400, "no column ''"),
        ("s/batches?from=0&columns=offset,offset", 400, "once"),
        ("q/batches?from=0", 400, "queue 'q' in vhost '/' is not a stream"),
        ("none/batches?from=0", 404, "no queue 'none' in vhost '/'"),
        ("none%ff", 404, "no queue 'none\\xff' in vhost '/'"),
        ("s/offset", 400, "'timestamp' is no time"),
        ("s/offset?timestamp=soon", 400, "'timestamp' is no time"),
    ],
)
def test_invalid_requests_are_refused_with_a_reason(path: str, status: int, reason: str) -> None:
    with broker(http=True) as server:
        with channel(server) as opened:
            declare(opened)
            opened.queue_declare("q")
            publish(opened, 0, 5)
        found, body = ask_json(server, path)
    assert found == status
    assert reason in body["reason"]


@pytest.mark.parametrize("auth", ["", "Basic Z3Vlc3Q6d3Jvbmc=", "Basic !", "Bearer x"])
def test_login_is_needed(auth: str) -> None:
    with broker(http=True) as server:
        status, headers, _ = ask(server, "s", auth=auth)
    assert status == 401
    assert headers["www-authenticate"].startswith("Basic ")


def test_info_has_first_and_end_offset(server: RunningBroker) -> None:
    with channel(server) as opened:
        declare(opened)
        status, body = ask_json(server, "s")
        assert (status, body["first_timestamp_ms"], body["last_timestamp_ms"]) == (200, None, None)
        publish(opened, 0, 5)
    status, body = ask_json(server, "s")
    times = table(server, "from=0&columns=timestamp")["timestamp"].cast(pa.int64()).to_pylist()
    assert body.pop("bytes") > 0
    assert body == {
        "name": "s",
        "vhost": "/",
        "first_offset": 0,
        "end_offset": 5,
        "messages": 5,
        "segments": 1,
        "first_timestamp_ms": times[0] // 1000,
        "last_timestamp_ms": times[-1] // 1000,
        "cursors": {},
        "readers": [],
    }


def test_offset_of_a_time() -> None:
    clock = ManualClock()
    with broker(http=True, clock=clock) as server, channel(server) as opened:
        declare(opened)
        start_ms = clock.now_ms()
        for number in range(3):
            publish(opened, number, number + 1)
            clock.advance(1)
        for late_ms, offset in ((0, 0), (1, 1), (1000, 1), (2000, 2), (2001, 3)):
            assert ask_json(server, f"s/offset?timestamp={start_ms + late_ms}")[1] == {
                "offset": offset
            }
        assert ask_json(server, "s/offset?timestamp=1970-01-01T00:00:00Z")[1] == {"offset": 0}
        assert ask_json(server, "s/offset?timestamp=9000-01-01")[1] == {"offset": 3}


def test_readers_are_shown_with_their_lag() -> None:
    clock = ManualClock()
    with broker(http=True, clock=clock) as server, channel(server) as opened:
        declare(opened)
        for number in range(4):
            publish(opened, number, number + 1)
            clock.advance(10)
        for name, offset in (("slow", 1), ("done", 4)):
            body = b'{"offset": %d}' % offset
            assert ask_json(server, f"s/cursors/{name}", "PUT", body) == (201, None)
        opened.basic_qos(prefetch_count=2)
        arguments = {"x-stream-offset": "first"}
        opened.basic_consume("s", lambda *_: None, consumer_tag="c", arguments=arguments)
        opened.connection.process_data_events(0)  # the consume is answered
        slow, consumer, done = ask_json(server, "s")[1]["readers"]
    assert consumer.pop("connection")
    assert slow.pop("connection") is done.pop("connection") is None
    assert slow == {
        "name": "slow",
        "kind": "cursor",
        "offset": 1,
        "behind": 3,
        "behind_ms": 30_000,
    }
    assert consumer == {
        "name": "c",
        "kind": "consumer",
        "offset": 2,
        "behind": 2,
        "behind_ms": 20_000,
    }
    assert (done["behind"], done["behind_ms"]) == (0, 0)


def test_cursor_is_set_shown_used_and_deleted(server: RunningBroker) -> None:
    with channel(server) as opened:
        declare(opened)
        publish(opened, 0, 5)
        assert ask_json(server, "s/cursors/me", "PUT", b'{"offset": 2}') == (201, None)
        assert ask_json(server, "s/cursors/me", "PUT", b'{"offset": 3}') == (204, None)
        assert ask_json(server, "s")[1]["cursors"] == {"me": 3}
        opened.basic_qos(prefetch_count=10)
        arguments = {"x-stream-cursor": "me", "x-stream-offset": "first"}
        for method, _, body in opened.consume("s", arguments=arguments, inactivity_timeout=60):
            assert (method is not None, body) == (True, b"3")
            break
        opened.cancel()
        assert ask_json(server, "s/cursors/me", "DELETE")[0] == 204
        assert ask_json(server, "s/cursors/me", "DELETE")[0] == 404
        assert ask_json(server, "s")[1]["cursors"] == {}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"offset": "1"}', b'{"offset": -1}', b'{"offset":6}']
)
def test_cursor_needs_an_offset_of_the_stream(body: bytes) -> None:
    with broker(http=True) as server:
        with channel(server) as opened:
            declare(opened)
            publish(opened, 0, 5)
        assert ask_json(server, "s/cursors/me", "PUT", body)[0] == 400
        assert ask_json(server, "s/cursors/" + "x" * 256, "PUT", b'{"offset":1}')[0] == 400


def test_cursor_survives_a_restart(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        with channel(server) as opened:
            declare(opened)
            publish(opened, 0, 5)
        ask_json(server, "s/cursors/me", "PUT", b'{"offset": 3}')
        before = table(server, "from=0")
    with broker(http=True, disk=Disk(tmp_path)) as server:
        assert ask_json(server, "s")[1]["cursors"] == {"me": 3}
        assert table(server, "from=0").equals(before)


def test_a_few_messages_can_be_read_as_json(server: RunningBroker) -> None:
    with channel(server) as opened:
        declare(opened)
        properties = pika.BasicProperties(message_id="m", headers={"n": 1})
        opened.basic_publish("", "s", b"a", properties)
        publish(opened, 1, 30)
        opened.basic_publish("", "s", b"\xff\xfe long")
    status, found = ask_json(server, "s/messages?from=0&count=20")
    assert status == 200
    assert (found["first_offset"], found["end_offset"], found["next_offset"]) == (0, 31, 20)
    assert [item["offset"] for item in found["items"]] == list(range(20))
    first = found["items"][0]
    assert (first["payload"], first["payload_encoding"]) == ("a", "string")
    assert first["properties"]["message_id"] == "m"
    assert first["properties"]["headers"]["n"] == 1
    assert (first["exchange"], first["routing_key"]) == ("", "s")
    assert first["timestamp_ms"] > 0
    _, rest = ask_json(server, "s/messages?from=20&count=500&truncate=2")
    assert [item["offset"] for item in rest["items"]] == list(range(20, 31))
    last = rest["items"][-1]
    assert (last["payload"], last["payload_encoding"], last["payload_bytes"]) == (
        "//4=",
        "base64",
        7,
    )
    assert ask_json(server, "s/messages?from=31")[1]["items"] == []
    assert ask_json(server, "s/messages?from=0&count=501")[0] == 400
    assert ask_json(server, "s/messages")[0] == 400


def test_files_of_a_range_are_listed_with_their_ends(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        with channel(server) as opened:
            declare(opened, stream_max_segment_size_bytes=2000)
            publish(opened, 0, 50, b"x" * 100)
        _, found = ask_json(server, "s/segments?from=20&to=30")
        firsts = [one["first_offset"] for one in found["segments"]]
        assert firsts[0] <= 20 and firsts[-1] < 30 and len(firsts) > 1
        for one in found["segments"]:
            assert (tmp_path / one["name"]).stat().st_size >= one["end"]
        assert firsts[0] <= found["known_offset"] <= 20
        assert found["number"] == stream_of(server).ledger.id
        assert ask_json(server, "s/segments?from=x")[0] == 400


@pytest.mark.parametrize("size", [1, 70_000, 500_000, 10_000_000])
def test_offset_after_some_bytes_is_about_that_far(tmp_path: Path, size: int) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        with channel(server) as opened:
            declare(opened, stream_max_segment_size_bytes=300_000)
            publish(opened, 0, 100, b"x" * 10_000)
        for first in (0, 7, 50, 99):
            _, found = ask_json(server, f"s/offset?from={first}&bytes={size}")
            read = (found["offset"] - first) * 10_000
            assert first < found["offset"] <= 100
            assert read <= size + 80_000
            assert read >= min(size - 80_000, (100 - first) * 10_000)
        assert ask_json(server, "s/offset?bytes=5")[0] == 400


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[tuple[RunningBroker, int, str]]:
    """A stream with a damaged segment in its middle: server, damaged offset, file."""
    with broker(http=True, disk=Disk(tmp_path)) as server, channel(server) as opened:
        declare(opened, stream_max_segment_size_bytes=2000)
        publish(opened, 0, 60, b"x" * 100)
    with broker(http=True, disk=Disk(tmp_path)):
        pass  # its checkpoint covers the segments, which are not written again from the log
    names = sorted(
        (path.name for path in tmp_path.glob("*.segment")), key=lambda name: int(name[9:-8])
    )
    firsts = [int(name[9:-8]) for name in names]
    file = tmp_path / names[2]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with broker(http=True, disk=Disk(tmp_path)) as server:
        yield server, firsts[3] - 1, names[2]


def test_damage_is_told_with_offsets_and_file(
    damaged: tuple[RunningBroker, int, str],
) -> None:
    server, bad, name = damaged
    status, found = ask_json(server, "s/messages?from=0&count=500")
    assert status == 200
    assert found["next_offset"] == bad, "the answer ends before the damage"
    assert found["skipped"] == []
    status, body = ask_json(server, f"s/messages?from={bad}")
    assert status == 500
    for part in ("stream 's' in vhost '/'", f"offsets {bad} to {bad}", name, "skip_damage"):
        assert part in body["reason"]
    status, body = ask_json(server, f"s/batches?from={bad}&to=60")
    assert status == 500
    for part in ("stream 's' in vhost '/'", f"offset {bad}", name):
        assert part in body["reason"]
    assert table(server, f"from={bad + 1}").num_rows == 60 - bad - 1


def test_damage_is_left_out_when_the_client_asks_for_it(
    damaged: tuple[RunningBroker, int, str],
) -> None:
    server, bad, name = damaged
    status, found = ask_json(server, "s/messages?from=0&count=500&skip_damage=true")
    assert status == 200
    offsets = [item["offset"] for item in found["items"]]
    assert offsets == [*range(bad), *range(bad + 1, 60)]
    (skipped,) = found["skipped"]
    assert (skipped["first_offset"], skipped["last_offset"]) == (bad, bad)
    assert name in skipped["reason"]


def test_consumer_passes_damage_and_the_stream_tells_it(
    damaged: tuple[RunningBroker, int, str],
) -> None:
    server, bad, name = damaged
    with channel(server) as opened:
        opened.basic_qos(prefetch_count=100)
        seen: list[bytes] = []
        opened.basic_consume(
            "s", lambda _c, _m, _p, body: seen.append(body), arguments={"x-stream-offset": "first"}
        )
        while len(seen) < 59:
            opened.connection.process_data_events(0.1)
    (text,) = stream_of(server).damage
    assert text.startswith(f"offsets {bad} to {bad}: {name} is damaged at byte ")
