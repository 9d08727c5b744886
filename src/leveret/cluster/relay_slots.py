"""Limit of the relay connections that a node opens at the same time.

When a leader is lost, all its clients connect again together. The new leader shakes hands with
`STRANGERS_MAX` connections at a time and drops the oldest beyond that. So each node that relays
opens few at a time, and its other clients wait. The newest one comes first: the oldest have waited
so long that they are about to give up, and a slot would be lost on them.
"""

import asyncio
from typing import Final

OPENING_MAX: Final = 48  # four nodes on one host stay below `STRANGERS_MAX` of a fifth one


class RelaySlots:
    """An asynchronous context manager that `OPENING_MAX` tasks may be inside."""

    def __init__(self) -> None:
        self._free = OPENING_MAX
        self._waiting: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:
                self._give()  # the slot came in the moment of the cancellation
            raise

    async def __aexit__(self, *_: object) -> None:
        self._give()

    def _give(self) -> None:
        """Give a slot to the newest task that waits."""
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
