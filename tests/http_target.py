"""An HTTP server that answers as the test says and keeps the requests."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int  # number of its connection


Answer = Callable[[Request], int]


class Target:
    """The requests so far, and the answer for the next ones."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Answer = lambda _: 200
        self.closes_after = False  # close each connection silently after its answer
        self.release = threading.Event()  # set at the end, for handlers that wait
        self.connections = 0
        self.at_once = 0
        self.at_once_most = 0
        self.port = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The address to post to."""
        return f"http://127.0.0.1:{self.port}/hook?x=1"

    def on_connected(self) -> int:
        """Count a connection and return its number."""
        with self._lock:
            self.connections += 1
            return self.connections

    def on_request(self, request: Request) -> int:
        """Return the status for a request."""
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
        with contextlib.suppress(OSError):  # the client may be gone
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
    """Run a server on a free port."""
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
