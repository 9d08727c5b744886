"""Let connections with much work go on one at a time.

A connection whose turn did much work (`HEAVY_WORK`) waits in this line before its next turn. Each
iteration of the event loop lets the first one go on. So an iteration takes about as long with a
hundred such connections as with one, and all other clients are served in every iteration.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from leveret.amqp.connection import Connection
from leveret.engine.turns.turn import WORK_MAX

HEAVY_WORK: Final = WORK_MAX // 4  # the work of a turn after which a connection waits here


class HeavyTurns:
    """The connections that wait for their next turn, longest wait first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Connection, Callable[[], None]] = {}
        self._is_set = False  # the loop will call `_serve`

    def wait(self, connection: Connection, go_on: Callable[[], None]) -> None:
        """Call `go_on` after all connections that wait already, in an iteration of its own."""
        self._waiting[connection] = go_on
        self._call_serve()

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is lost."""
        self._waiting.pop(connection, None)

    def _call_serve(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_set = False
        for connection, go_on in self._waiting.items():
            del self._waiting[connection]
            if self._waiting:
                self._call_serve()
            go_on()
            return
