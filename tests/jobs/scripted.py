"""A server that does to its clients what a script says: closes, stalls, answers in pieces.

It speaks just enough HTTP to know where a request ends. `seen` has the requests in their order.
"""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Act = Callable[[socket.socket], None]


def answers(body: bytes, status: str = "200 OK", more: bytes = b"") -> Act:
    head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n" % (status.encode(), len(body), more)

    def act(peer: socket.socket) -> None:
        peer.sendall(head + body)

    return act


def closes(peer: socket.socket) -> None:
    peer.shutdown(socket.SHUT_RDWR)


def answers_and_closes(body: bytes, closed: threading.Event) -> Act:
    """What a server does whose keep-alive time is over; sets `closed` when it has done so."""
    first = answers(body)

    def act(peer: socket.socket) -> None:
        first(peer)
        closes(peer)
        closed.set()

    return act


def answers_byte_by_byte(body: bytes) -> Act:
    def act(peer: socket.socket) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body):
            peer.sendall(bytes([byte]))

    return act


def stalls(_peer: socket.socket) -> None:
    """Never answers."""


class Scripted:
    """Does one act for each request, then closes what comes."""

    def __init__(self, acts: list[Act]) -> None:
        self._acts = acts
        self.seen: list[bytes] = []
        self.connections = 0
        self._peers: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        while (request := _request(peer)) is not None:
            self.seen.append(request)
            act = self._acts.pop(0) if self._acts else closes
            try:
                act(peer)
            except OSError:
                return

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # wakes up who accepts
        self._accepting.join()
        self._server.close()
        for peer in self._peers:
            peer.close()


def _request(peer: socket.socket) -> bytes | None:
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            length = re.search(rb"Content-Length: (\d+)", head)
            if len(body) >= (int(length[1]) if length else 0):
                return data
        try:
            piece = peer.recv(65536)
        except OSError:
            return None
        if not piece:
            return None
        data += piece


@contextmanager
def scripted(*acts: Act) -> Iterator[Scripted]:
    server = Scripted(list(acts))
    try:
        yield server
    finally:
        server.close()
