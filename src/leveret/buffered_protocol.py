"""Adapts compiled protocols to asyncio's own event loops.

A compiled class cannot inherit from asyncio.BufferedProtocol. uvloop only needs the methods of that
class, but the loops of asyncio check the base class.
"""

import asyncio
from typing import Protocol, cast


class Buffered(Protocol):
    """The methods of an asyncio.BufferedProtocol."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool: ...


def adapted(protocol: Buffered, loop: asyncio.AbstractEventLoop) -> asyncio.BaseProtocol:
    """Return a protocol that the loop accepts."""
    if isinstance(loop, asyncio.BaseEventLoop):
        return _Adapter(protocol)
    return cast(asyncio.BaseProtocol, protocol)


class _Adapter(asyncio.BufferedProtocol):
    """Wraps a protocol that does not inherit from asyncio's class."""

    def __init__(self, protocol: Buffered) -> None:
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._protocol.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool:
        return self._protocol.eof_received()
