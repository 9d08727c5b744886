"""Ranges of one query at several nodes: each begins at another node, and outlives its loss."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

from leveret.arrow.encoding import END_MARKER
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import Options, parse_options
from pyspark_leveret.ranges import Range, split_ranges
from pyspark_leveret.reading import read_range
from tools.ports import HOST

BATCH_ROWS = 10
ROWS = 100


class FakeNode(ThreadingHTTPServer):
    """Answers reads of a stream whose only column is the offset."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Answer)
        self.breaks_after = ROWS  # rows of an answer, then its connection is closed
        self.status = 200
        self.asked: list[tuple[int, int]] = []  # the range of each read

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: FakeNode
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        first, end = int(query["from"][0]), int(query["to"][0])
        self.server.asked.append((first, end))
        self.send_response(self.server.status)
        if self.server.status == 401:
            self.send_header("WWW-Authenticate", "Basic")
        self.send_header("Connection", "close")
        if self.server.status == 200:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.server.status == 200:
            self._send_rows(first, end)

    def _send_rows(self, first: int, end: int) -> None:
        schema = pa.schema([("offset", pa.int64())])
        self._send(schema.serialize())
        for low in range(first, end, BATCH_ROWS):
            if low >= first + self.server.breaks_after:
                return  # the connection ends without the last chunk of the answer
            offsets = pa.array(range(low, min(low + BATCH_ROWS, end)), pa.int64())
            self._send(pa.record_batch([offsets], schema=schema).serialize())
        self._send(END_MARKER)
        self._send(b"")

    def _send(self, piece: pa.Buffer | bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), bytes(piece)))

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def running(count: int) -> Iterator[list[FakeNode]]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(FakeNode()) for _ in range(count)]
        for node in nodes:
            threading.Thread(target=node.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(node.shutdown)
        yield nodes


def options_of(*urls: str, retry_s: str = "60") -> Options:
    return parse_options({"url": ",".join(urls), "stream": "s", "retrySeconds": retry_s})


def offsets_of(options: Options, part: Range) -> list[int]:
    return [row for batch in read_range(options, part, ["offset"]) for row in batch[0].to_pylist()]


def test_ranges_are_dealt_to_all_nodes() -> None:
    with running(3) as nodes:
        options = options_of(*(node.url for node in nodes))
        parts = split_ranges([Range("s", 0, ROWS)], 6, ROWS)
        found = [offset for part in parts for offset in offsets_of(options, part)]
    assert found == list(range(ROWS))
    assert [len(node.asked) for node in nodes] == [2, 2, 2]


def test_range_of_a_node_that_dies_in_mid_answer_is_read_to_its_end_at_another() -> None:
    with running(2) as nodes:
        nodes[0].breaks_after = 30
        options = options_of(*(node.url for node in nodes))
        assert offsets_of(options, Range("s", 0, ROWS)) == list(range(ROWS))
    assert nodes[0].asked == [(0, ROWS)]
    assert nodes[1].asked == [(30, ROWS)]


@pytest.mark.parametrize("is_busy", [True, False])
def test_node_that_is_busy_or_gone_is_passed_over(is_busy: bool) -> None:
    with running(2) as nodes:
        nodes[0].status = 503
        if not is_busy:
            nodes[0].shutdown()
            nodes[0].server_close()
        options = options_of(*(node.url for node in nodes), retry_s="0")
        assert offsets_of(options, Range("s", 0, ROWS)) == list(range(ROWS))


def test_query_ends_if_no_node_answers() -> None:
    with running(2) as nodes:
        options = options_of(*(node.url for node in nodes), retry_s="0")
    with pytest.raises(BrokerError, match="does not answer"):
        offsets_of(options, Range("s", 0, ROWS))


def test_refused_login_is_not_tried_at_another_node() -> None:
    with running(2) as nodes:
        nodes[0].status = 401
        with pytest.raises(LoginRefusedError):
            offsets_of(options_of(*(node.url for node in nodes)), Range("s", 0, ROWS))
    assert nodes[1].asked == []
