"""A TCP relay on a free port (or a given one) in front of a broker, or of the nodes of a cluster.

Clients connect to the relay instead of the broker, so that a test can cut the line between them
and see when the broker hangs up. It passes bytes unchanged and keeps no more than one read of
64 KiB per direction. With several targets, each new connection goes to the next of them.
`run_suites` uses it too, for suites that insist on port 5672.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final

READ_BYTES: Final = 65536
CONNECT_TIMEOUT_S: Final = 60.0


class Relay:
    """Relays every connection to one of `targets`, in turns, until closed; a context manager."""

    def __init__(
        self, targets: Sequence[tuple[str, int]], port: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self._targets = itertools.cycle(targets)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=512)
        self._lines: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self.accepted = threading.Semaphore(0)  # one release per accepted connection
        self.broker_hung_up = threading.Event()  # the broker's end of a line was closed
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return host, port

    def cut(self) -> None:
        """Drop every line that exists now; new connections are still accepted."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            for end in line:
                _hang_up(end)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            line = (client, next(self._targets))
            threading.Thread(target=self._open_line, args=line, daemon=True).start()

    def _open_line(self, client: socket.socket, target: tuple[str, int]) -> None:
        try:
            broker = socket.create_connection(target, CONNECT_TIMEOUT_S)
        except OSError:
            client.close()
            return
        broker.settimeout(None)
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._lines.append((client, broker))
        self.accepted.release()
        down = threading.Thread(target=self._pump_down, args=(broker, client), daemon=True)
        down.start()
        _pump(client, broker)
        down.join()
        client.close()
        broker.close()

    def _pump_down(self, broker: socket.socket, client: socket.socket) -> None:
        _pump(broker, client)
        self.broker_hung_up.set()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy until either end is closed."""
    while True:
        try:
            data = source.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)
            return
        try:
            target.sendall(data)
        except OSError:
            _hang_up(source)
            return


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
