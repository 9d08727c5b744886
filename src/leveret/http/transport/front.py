"""The HTTP front as the node sees it: listen, run, stop.

The sockets are bound before the node reports that it is ready. Starlette and uvicorn are imported
afterwards, in a thread, because they cost as much as the rest of the start (about 100 ms). A
request that arrives in between waits in the backlog of the socket and is answered later.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from leveret.http.framework.node import NodeView
from leveret.http.transport.listener import Listener
from leveret.listening import Admission, Client, Relayed, bound_sockets

log = logging.getLogger(__name__)

_STOP_WITHIN_S: Final = 5
_RETRY_S: Final = 1.0  # until the next attempt to import the modules of the front


class Server(Protocol):
    """A server that also takes the clients of other nodes."""

    @property
    def admission(self) -> Admission:
        """Counts the clients, and refuses too many."""

    def buffered_bytes(self) -> int:
        """Return the memory of request bodies, and of answers that clients have not read."""

    def make_protocol(self, client: Client) -> asyncio.Protocol:
        """Return the protocol for the connection of a client that was admitted."""

    def make_relayed(self, relayed: Relayed) -> asyncio.Protocol:
        """Return the protocol for a client of another node that was admitted."""


Serve = Callable[
    [NodeView, Sequence[Listener], asyncio.Event, int, Callable[[Server], None]],
    Awaitable[None],
]


class HttpFront:
    """Answers clients after `run`, until `stop`: on the sockets of `listen`, and relayed ones."""

    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._listeners: list[Listener] = []
        self._stopping = asyncio.Event()
        self._server: asyncio.Future[Server] = asyncio.get_running_loop().create_future()

    def listen(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None = None,
        handshake_s: float | None = None,
    ) -> tuple[str, int]:
        """Open sockets, with TLS if there is a context. Return their address. Raise OSError.

        Port 0 chooses a free port. The sockets are answered when `run` is called.
        """
        found = bound_sockets(host, port)
        self._listeners += [Listener(each, context, handshake_s) for each in found]
        bound_host, bound_port = found[0].getsockname()[:2]
        return bound_host, bound_port

    async def run(self) -> None:
        """Serve until `stop`. Run this in a task group of the node."""
        serve = await _import_serve()
        await serve(
            self._node, self._listeners, self._stopping, _STOP_WITHIN_S, self._server.set_result
        )

    def buffered_bytes(self) -> int:
        """Return the memory of request bodies, and of answers that clients have not read."""
        return self._server.result().buffered_bytes() if self._server.done() else 0

    async def server(self) -> Server:
        """Return the server, when it accepts clients."""
        return await asyncio.shield(self._server)

    def stop(self) -> None:
        """Let `run` return when running requests are answered, or after a deadline."""
        self._stopping.set()


async def _import_serve() -> Serve:
    """Import the server. Retry: clients may have taken all file descriptors for a while."""
    while True:
        try:
            return await asyncio.to_thread(_import_now)
        except OSError as fault:
            log.warning("the HTTP server could not start and tries again: %s", fault)
            await asyncio.sleep(_RETRY_S)


def _import_now() -> Serve:
    from leveret.http.transport.server import serve

    return serve
