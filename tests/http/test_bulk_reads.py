"""Bulk reads under faults: dead workers, stalled clients, retention, damaged chunks."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path

import pika
import pyarrow as pa
import pytest

from leveret.storage.disk import Disk
from leveret.testing import broker
from leveret.testing.broker import RunningBroker
from leveret.testing.disk import FakeDisk
from tests.http.stream_client import (
    GUEST,
    WITHIN_S,
    ask_json,
    channel,
    declare,
    on_loop,
    publish,
    stream_of,
    table,
)

pytestmark = pytest.mark.compiled_only("workers have one form; test_streams reads in both")

LARGE = b"x" * 1_000_000
MANY = 30  # large messages; more than the buffers between worker and client hold


def fill(server: RunningBroker, count: int, body: bytes = LARGE, **arguments: object) -> None:
    with channel(server) as opened:
        declare(opened, **arguments)
        publish(opened, 0, count, body)


def begin(server: RunningBroker, query: str = "from=0") -> tuple[HTTPConnection, HTTPResponse]:
    """Begin a read, and take only its first bytes."""
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=WITHIN_S)
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.request(
        "GET", f"/api/streams/%2F/s/batches?{query}", headers={"Authorization": GUEST}
    )
    answer = connection.getresponse()
    assert answer.status == 200
    answer.read(1000)
    return connection, answer


def wait_until(happened: Callable[[], object]) -> None:
    """Wait for a condition that has no event."""
    deadline = time.monotonic() + WITHIN_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def assert_breaks_off(answer: HTTPResponse) -> bytes:
    """Read the rest of an answer that breaks off. It must not have the end marker."""
    found = b""
    with pytest.raises((IncompleteRead, ConnectionError)):
        while True:
            piece = answer.read1(65536)
            if not piece:
                raise IncompleteRead(b"")  # chunked encoding shows whether the answer is complete
            found += piece
    return found


def worker_pid(server: RunningBroker) -> int:
    (pid,) = server.node.bulk_reads.worker_pids
    return pid


def test_broker_never_imports_pyarrow(tmp_path: Path) -> None:
    code = (
        "import sys, leveret.runtime.node, leveret.http.transport.server;"
        "assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_worker_serves_reads_in_turn_and_ends_with_the_node(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, 3, b"x")
        assert not server.node.bulk_reads.worker_pids
        table(server, "from=0")
        pid = worker_pid(server)
        table(server, "from=0")
        assert worker_pid(server) == pid
        libraries = Path(f"/proc/{pid}/maps").read_text()
        assert "/pyarrow/" in libraries
        # They are installed, and loading them would take longer than the read.
        assert "/numpy/" not in libraries
        assert "/pandas/" not in libraries
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_reads_at_the_same_time_have_workers_of_their_own(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, MANY)
        server.node.bulk_reads.workers_max = 2
        server.node.bulk_reads.stall_s = 600  # the first client waits for the others
        reads = [begin(server) for _ in range(3)]
        first, second = server.node.bulk_reads.worker_pids  # the third read shares one of them
        os.kill(second, signal.SIGKILL)
        assert_breaks_off(reads[1][1])
        for connection, _ in reads[1:]:
            connection.close()
        reads[0][1].read()
        reads[0][0].close()
        wait_until(lambda: server.node.bulk_reads.open_count == 0)
        assert table(server, "from=0&columns=offset").num_rows == MANY
        assert first in server.node.bulk_reads.worker_pids


def test_idle_worker_ends_and_comes_again(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, 3, b"x")
        server.node.bulk_reads.idle_s = 0.01
        table(server, "from=0")
        wait_until(lambda: not server.node.bulk_reads.worker_pids)
        assert table(server, "from=0").num_rows == 3


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_killed_worker_breaks_the_read_off_and_the_next_one_works(
    where: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path) if where == "disk" else None
    with broker(http=True, disk=disk) as server:
        fill(server, MANY)
        connection, answer = begin(server)
        os.kill(worker_pid(server), signal.SIGKILL)
        assert_breaks_off(answer)
        connection.close()
        assert table(server, "from=0&columns=offset").num_rows == MANY


def test_client_that_stops_reading_is_broken_off_and_holds_nothing(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, MANY)
        server.node.bulk_reads.stall_s = 0.5
        connection, answer = begin(server)
        assert server.node.bulk_reads.open_count == 1
        wait_until(lambda: server.node.bulk_reads.open_count == 0)
        assert_breaks_off(answer)
        connection.close()


def test_client_that_goes_away_frees_its_read(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, MANY)
        connection, answer = begin(server)
        answer.close()
        connection.close()
        wait_until(lambda: server.node.bulk_reads.open_count == 0)
        assert table(server, "from=0&columns=offset").num_rows == MANY


def test_more_reads_than_may_run_wait_for_their_turn(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, 20)
        table(server, "from=0")  # the worker loads pyarrow, which may take longer than reads wait
        counts: list[int] = []
        threads = [
            threading.Thread(target=lambda: counts.append(table(server, "from=0").num_rows))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == [20] * 12


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_retention_that_passes_a_running_read_breaks_it_off(where: str, tmp_path: Path) -> None:
    disk = Disk(tmp_path) if where == "disk" else None
    with broker(http=True, disk=disk) as server:
        fill(server, MANY, max_length_bytes=40_000_000, stream_max_segment_size_bytes=2_000_000)
        connection, answer = begin(server)
        with channel(server) as opened:
            publish(opened, MANY, 3 * MANY, LARGE)
        assert stream_of(server).first_offset > MANY
        assert_breaks_off(answer)
        connection.close()


def test_segment_that_goes_before_the_first_byte_is_410(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, 10, b"x" * 600, stream_max_segment_size_bytes=1000)
        next(tmp_path.glob("stream-*-0.segment")).unlink()
        status, body = ask_json(server, "s/batches?from=0")
        assert (status, body["error"], body["first_offset"]) == (410, "gone", 0)


def test_damage_in_the_first_rows_is_a_500(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, 10, b"needle")
        damage(tmp_path, b"needle")
        status, body = ask_json(server, "s/batches?from=0")
        assert status == 500
        place = "offset 0 cannot be read: stream-1-0.segment is damaged at byte 24"
        reason = f"stream 's' in vhost '/': {place}: a chunk has been changed"
        assert body["reason"] == reason


def test_damage_after_the_first_rows_breaks_the_answer_off(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, MANY)
        with channel(server) as opened:
            publish(opened, MANY, MANY + 1, b"needle")
        damage(tmp_path, b"needle")
        connection, answer = begin(server)
        found = assert_breaks_off(answer)
        assert not found.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
        connection.close()


def damage(folder: Path, needle: bytes) -> None:
    path = next(folder.glob("stream-*-0.segment"))
    data = path.read_bytes()
    assert needle in data
    path.write_bytes(data.replace(needle, needle.upper(), 1))


def test_disk_that_another_process_cannot_read_is_served_too() -> None:
    with broker(http=True, disk=FakeDisk()) as server:
        fill(server, 10, b"body")
        assert table(server, "from=2")["body"].to_pylist() == [b"body"] * 8


def test_missing_pyarrow_is_a_501_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError('gone', name='pyarrow')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
    with broker(http=True) as server:
        fill(server, 1, b"x")
        status, body = ask_json(server, "s/batches?from=0")
        assert status == 501
        assert "pip install 'leveret[arrow]'" in body["reason"]
        assert ask_json(server, "s")[0] == 200


def test_reads_while_publishing_see_whole_prefixes(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        with channel(server) as opened:
            declare(opened, stream_max_segment_size_bytes=100_000)
        publisher = threading.Thread(target=publish_fast, args=(server, 30_000))
        publisher.start()
        seen = 0
        while publisher.is_alive() or seen < 30_000:
            end = ask_json(server, "s")[1]["end_offset"]
            found = table(server, f"from={seen}&columns=offset,body")
            offsets = found["offset"].to_pylist()
            assert offsets == list(range(seen, seen + len(offsets)))
            assert found["body"].to_pylist() == [b"%08d" % n for n in offsets]
            assert len(offsets) >= end - seen
            seen += len(offsets)
        publisher.join()
        assert seen == 30_000
        assert table(server, "from=0&columns=offset").num_rows == 30_000


def publish_fast(server: RunningBroker, count: int) -> None:
    """Publish without waiting for confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    opened = connection.channel()
    for number in range(count):
        opened.basic_publish("", "s", b"%08d" % number)
    connection.close()


def test_stopping_node_breaks_reads_off(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, MANY)
        connection, answer = begin(server)
        began = time.monotonic()
    assert (
        time.monotonic() - began < 40
    )  # the client does not read: without a limit this would never end
    assert_breaks_off(answer)
    connection.close()


def test_deleted_stream_is_unknown(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, 3, b"x")
        stream = stream_of(server)
        with channel(server) as opened:
            opened.queue_delete("s")
        assert on_loop(server, lambda: stream.deleted)
        assert ask_json(server, "s/batches?from=0")[0] == 404


def test_answer_is_a_stream_that_can_be_read_piece_by_piece(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        fill(server, 30)
        connection = HTTPConnection("127.0.0.1", server.http_port, timeout=WITHIN_S)
        headers = {"Authorization": GUEST}
        connection.request("GET", "/api/streams/%2F/s/batches?from=0", headers=headers)
        rows = [b.num_rows for b in pa.ipc.open_stream(connection.getresponse())]
        connection.close()
    assert sum(rows) == 30
    assert len(rows) > 2
