"""The HTTP front as the node sees it: bind, run, stop.

Binding happens before the node says that it is ready; Starlette and uvicorn are imported after, in
a thread, because they cost as much as the rest of the start (about 100 ms). A request that arrives
in between waits in the socket's backlog and is answered.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from leveret.addresses import maybe_dual_stack
from leveret.http.framework.node import NodeView
from leveret.http.transport.listener import Listener

log = logging.getLogger(__name__)

_BACKLOG: Final = 256
_STOP_WITHIN_S: Final = 5
_AGAIN_S: Final = 1.0  # until the next try to read the modules of the front

Serve = Callable[[NodeView, Sequence[Listener], asyncio.Event, int], Awaitable[None]]


class HttpFront:
    """Listens from `bind` on, answers from `run` on, until `stop`."""

    def __init__(self, host: str, port: int, node: NodeView) -> None:
        self._host = host
        self._port = port
        self._node = node
        self._listeners: list[Listener] = []
        self._stopping = asyncio.Event()

    def bind(self) -> tuple[str, int]:
        """Opens the socket and gives its address; port 0 has become a free one. Raises OSError."""
        bound = _bound(self._host, self._port)
        self._listeners.append(Listener(bound))
        return _address(bound)

    def bind_secured(
        self, port: int, context: ssl.SSLContext, handshake_s: float
    ) -> tuple[str, int]:
        """The same for a second socket, which speaks TLS."""
        bound = _bound(self._host, port)
        self._listeners.append(Listener(bound, context, handshake_s))
        return _address(bound)

    async def run(self) -> None:
        """Serves until `stop`; belongs into a task group of the node."""
        assert self._listeners, "run before bind"
        serve = await _loaded()
        await serve(self._node, self._listeners, self._stopping, _STOP_WITHIN_S)

    def stop(self) -> None:
        """Lets `run` return once running requests are answered, or after a deadline."""
        self._stopping.set()


def _bound(host: str, port: int) -> socket.socket:
    both = maybe_dual_stack(host, port, _BACKLOG)
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


async def _loaded() -> Serve:
    """What answers. Clients may have come already, and taken all descriptors for a while."""
    while True:
        try:
            return await asyncio.to_thread(_load)
        except OSError as fault:
            log.warning("HTTP is not answered yet: %s", fault)
            await asyncio.sleep(_AGAIN_S)


def _load() -> Serve:
    from leveret.http.transport.server import serve

    return serve
