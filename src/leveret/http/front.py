"""The HTTP front as the node sees it: bind, run, stop.

Binding happens before the node says that it is ready; Starlette and uvicorn are imported after, in
a thread, because they cost as much as the rest of the start (about 100 ms). A request that arrives
in between waits in the socket's backlog and is answered.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from leveret.http.facts import BrokerFacts

_BACKLOG: Final = 256
_STOP_WITHIN_S: Final = 5


class HttpFront:
    """Listens from `bind` on, answers from `run` on, until `stop`."""

    def __init__(self, host: str, port: int, facts: BrokerFacts) -> None:
        self._host = host
        self._port = port
        self._facts = facts
        self._listener: socket.socket | None = None
        self._stopping = asyncio.Event()

    def bind(self) -> tuple[str, int]:
        """Opens the socket and gives its address; port 0 has become a free one. Raises OSError."""
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        family, address = found[0][0], found[0][4]
        self._listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        host, port = self._listener.getsockname()[:2]
        return host, port

    async def run(self) -> None:
        """Serves until `stop`; belongs into a task group of the node."""
        assert self._listener is not None, "run before bind"
        serve = await asyncio.to_thread(_load)
        await serve(self._facts, self._listener, self._stopping, _STOP_WITHIN_S)

    def stop(self) -> None:
        """Lets `run` return once running requests are answered, or after a deadline."""
        self._stopping.set()


def _load() -> Callable[[BrokerFacts, socket.socket, asyncio.Event, int], Awaitable[None]]:
    from leveret.http.server import serve

    return serve
