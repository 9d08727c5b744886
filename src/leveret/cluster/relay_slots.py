"""Limit of the relay connections that a node opens at the same time.

When a leader is lost, all its clients connect again together. The new leader shakes hands with
`STRANGERS_MAX` connections at a time and drops the oldest beyond that. So each node that relays
opens few at a time, and its other clients wait. The newest one comes first: the oldest have waited
so long that they are about to give up, and a slot would be lost on them.

Addresses take turns. Nobody has logged in yet, so one address with many connections must not keep
the clients of other addresses waiting.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from leveret.addresses import network_of

OPENING_MAX: Final = 48  # four nodes on one host stay below `STRANGERS_MAX` of a fifth one


class RelaySlots:
    """Slots for `OPENING_MAX` tasks."""

    def __init__(self) -> None:
        self._free = OPENING_MAX
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}  # by network, next one first

    @asynccontextmanager
    async def held(self, host: str) -> AsyncIterator[None]:
        """Wait for a slot for a client of this host, and hold it inside the block."""
        await self._take(network_of(host))
        try:
            yield
        finally:
            self._give()

    async def _take(self, network: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(network, []).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            waiting = self._waiting.get(network, [])
            if not turn.cancelled():
                self._give()  # the slot came in the moment of the cancellation
            elif turn in waiting:  # `_give` may have passed it over already
                waiting.remove(turn)
                if not waiting:
                    del self._waiting[network]
            raise

    def _give(self) -> None:
        """Give a slot to the newest task of the next network."""
        while self._waiting:
            network = next(iter(self._waiting))
            turns = self._waiting.pop(network)
            turn = turns.pop()
            if turns:
                self._waiting[network] = turns  # behind the other networks
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
