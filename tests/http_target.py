"""A real HTTP server that answers as the test says, and keeps what it was asked."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """What was posted."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int  # which one it came by


Answer = Callable[[Request], int]


class Target:
    """Requests so far, and how the next ones are answered."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Answer = lambda _: 200
        self.closes_after = False  # each connection after its answer, without saying so
        self.release = threading.Event()  # set at the end: lets go of what waits for it
        self.connections = 0
        self.at_once = 0
        self.at_once_most = 0
        self.port = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self.port}/hook?x=1"

    def on_connected(self) -> int:
        """A new connection; its number."""
        with self._lock:
            self.connections += 1
            return self.connections

    def on_request(self, request: Request) -> int:
        """The status for a request."""
        with self._lock:
            self.requests.append(request)
            self.at_once += 1
            self.at_once_most = max(self.at_once, self.at_once_most)
        try:
            return self.answer(request)
        finally:
            with self._lock:
                self.at_once -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # an answer is one packet
    target: Target
    number = 0

    def setup(self) -> None:
        super().setup()
        self.number = self.target.on_connected()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.target.on_request(Request(self.path, dict(self.headers), body, self.number))
        with contextlib.suppress(OSError):  # nobody may be waiting any more
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")
        if self.target.closes_after:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def http_target() -> Iterator[Target]:
    """A server on a free port."""
    target = Target()
    handler = type("Handler", (_Handler,), {"target": target})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    target.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield target
    finally:
        target.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
