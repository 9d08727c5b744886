"""The HTTP front as the node sees it: bind, run, stop.

The sockets are bound before the node reports that it is ready. Starlette and uvicorn are imported
afterwards, in a thread, because they cost as much as the rest of the start (about 100 ms). A
request that arrives in between waits in the backlog of the socket and is answered later.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from leveret.addresses import maybe_dual_stack_socket
from leveret.http.framework.node import NodeView
from leveret.http.transport.listener import Listener

log = logging.getLogger(__name__)

_BACKLOG: Final = 256
_STOP_WITHIN_S: Final = 5
_RETRY_S: Final = 1.0  # until the next attempt to import the modules of the front

Serve = Callable[[NodeView, Sequence[Listener], asyncio.Event, int], Awaitable[None]]


class HttpFront:
    """Listen after `bind`, answer after `run`, until `stop`."""

    def __init__(self, host: str, port: int, node: NodeView) -> None:
        self._host = host
        self._port = port
        self._node = node
        self._listeners: list[Listener] = []
        self._stopping = asyncio.Event()

    def bind(self) -> tuple[str, int]:
        """Open the socket and return its address. Port 0 chooses a free port. Raise OSError."""
        bound = _bound(self._host, self._port)
        self._listeners.append(Listener(bound))
        return _address(bound)

    def bind_secured(
        self, port: int, context: ssl.SSLContext, handshake_s: float
    ) -> tuple[str, int]:
        """Open a second socket, which speaks TLS, and return its address."""
        bound = _bound(self._host, port)
        self._listeners.append(Listener(bound, context, handshake_s))
        return _address(bound)

    async def run(self) -> None:
        """Serve until `stop`. Run this in a task group of the node."""
        assert self._listeners, "run before bind"
        serve = await _import_serve()
        await serve(self._node, self._listeners, self._stopping, _STOP_WITHIN_S)

    def stop(self) -> None:
        """Let `run` return when running requests are answered, or after a deadline."""
        self._stopping.set()


def _bound(host: str, port: int) -> socket.socket:
    both = maybe_dual_stack_socket(host, port, _BACKLOG)
    if both is not None:
        return both
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, address = found[0][0], found[0][4]
    bound = socket.create_server(address, family=family, backlog=_BACKLOG)
    bound.setblocking(False)
    return bound


def _address(bound: socket.socket) -> tuple[str, int]:
    host, port = bound.getsockname()[:2]
    return host, port


async def _import_serve() -> Serve:
    """Import the server. Retry: clients may have taken all file descriptors for a while."""
    while True:
        try:
            return await asyncio.to_thread(_import_now)
        except OSError as fault:
            log.warning("HTTP is not answered yet: %s", fault)
            await asyncio.sleep(_RETRY_S)


def _import_now() -> Serve:
    from leveret.http.transport.server import serve

    return serve
