"""How fast requests may go through many messages or objects: slices, and rests between them.

The broker's one loop serves clients as well. A slice takes a few milliseconds at most. While
clients do anything at all, every slice is followed by a rest of fourteen times its length, so that
what they lose is less than a tenth, the sending of answers included; on an idle node slices follow
each other at once. All requests share one pace: ten searches take no more of the loop than one.

Whether clients do anything is told by the engine's turns: each has a time.
"""

import asyncio
from time import perf_counter
from typing import Final

from leveret.engine.broker import Broker

SLICE_S: Final = 0.002
REST_RATIO: Final = 14.0
REQUEST_S: Final = 0.8  # after this time a request answers with what it has, and a cursor


class Pace:
    """Of all requests of a node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._resting = asyncio.Lock()  # rests follow each other, whoever took the slices
        self._turn_ms = 0  # the engine's time at the end of the last slice

    async def rest(self, slice_s: float) -> None:
        """A slice of this length is over: return when the next one may begin."""
        before = self._turn_ms
        self._turn_ms = self._broker.turn.now_ms
        async with self._resting:
            await asyncio.sleep(slice_s * REST_RATIO if self._turn_ms != before else 0)


class Slices:
    """The slices of one request."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._began = perf_counter()
        self._started = self._began

    def is_late(self) -> bool:
        """Whether the request should answer with what it has."""
        return perf_counter() - self._began >= REQUEST_S

    def go_on(self) -> None:
        """What came between, as the client's taking of a piece, is no part of a slice."""
        self._started = perf_counter()

    async def maybe_rest(self) -> None:
        """Go on at once, or, after a slice, when others have had their time."""
        slice_s = perf_counter() - self._started
        if slice_s >= SLICE_S:
            await self._pace.rest(slice_s)
            self._started = perf_counter()
