"""Share the event loop: do long work in slices, and let other work run between two slices.

The broker has one event loop, which also serves the clients. Nothing may hold it longer than a few
milliseconds. This module has the two ways to yield the loop:

- `run_in_slices` is for changes, which must end soon. After each slice it yields once.
- `Slices` is for reading many messages or objects. While clients are active, each slice is followed
  by a rest of `REST_RATIO` times its length, so that reading costs the clients less than a tenth of
  the loop, the sending of answers included. On an idle node the next slice begins at once. A rest
  ends after `REST_MAX_S`: a slice that took so long was waiting for the processor or for others.

The readers of messages and objects share one `LoopShare`, those of jobs another: ten searches take
no more of the loop than one. Users or namespaces take turns (`FairLock`): ten searches of one user
delay another user no more than one search.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from time import perf_counter
from typing import Final

SLICE_S: Final = 0.002  # work between two yields, in seconds
REST_RATIO: Final = 14.0  # length of a rest, in slices
REST_MAX_S: Final = 0.5
REQUEST_S: Final = 0.8  # after this time a request answers with its results so far and a cursor


class FairLock:
    """A lock that owners hold in turn, however many places in the queue one of them has."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by owner, next owner first

    @asynccontextmanager
    async def held(self, owner: str) -> AsyncIterator[None]:
        """Wait for the turn of the owner, and hold the lock inside the block."""
        await self._acquire(owner)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, owner: str) -> None:
        if not self._is_held:
            self._is_held = True
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # the lock was handed over just before
                self._release()
            raise

    def _release(self) -> None:
        """Hand the lock to the next owner; the current one goes to the end."""
        while self._waiting:
            owner = next(iter(self._waiting))
            places = self._waiting.pop(owner)
            place = places.popleft()
            if places:
                self._waiting[owner] = places
            if not place.done():
                place.set_result(None)
                return
        self._is_held = False


class LoopShare:
    """Limit the share of the event loop that all readers of a node take together."""

    def __init__(self, activity: Callable[[], int]) -> None:
        self._activity = activity  # returns a number that changes when clients do anything
        self._last_activity = 0  # at the end of the last slice
        self._resting = FairLock()  # rests of different readers follow each other

    async def rest(self, slice_s: float, owner: str = "") -> None:
        """Return when the next slice may begin, after a slice of this length."""
        before = self._last_activity
        self._last_activity = self._activity()
        rest_s = min(slice_s * REST_RATIO, REST_MAX_S) if self._last_activity != before else 0
        async with self._resting.held(owner):
            await asyncio.sleep(rest_s)


class Slices:
    """Measure the slices of one request."""

    def __init__(self, share: LoopShare, owner: str = "") -> None:
        self._share = share
        self._owner = owner  # user of the request; empty without a login
        self._request_began_s = perf_counter()
        self._slice_began_s = self._request_began_s

    def is_late(self) -> bool:
        """Return True if the request should answer with its results so far."""
        return perf_counter() - self._request_began_s >= REQUEST_S

    def is_over(self) -> bool:
        """Return True if the slice has lasted `SLICE_S`."""
        return perf_counter() - self._slice_began_s >= SLICE_S

    def begin(self) -> None:
        """Begin a slice now: the time since the last one, such as sending a piece, is not work."""
        self._slice_began_s = perf_counter()

    async def rest(self) -> None:
        """End the slice, rest, and begin the next one."""
        await self._share.rest(perf_counter() - self._slice_began_s, self._owner)
        self.begin()

    async def rest_if_over(self) -> None:
        """Go on at once, or rest if the slice is over."""
        if self.is_over():
            await self.rest()


async def run_in_slices(
    steps: Iterator[object], around: Callable[[], AbstractContextManager[object]] = nullcontext
) -> None:
    """Run all steps. Each slice runs inside `around()`, for example a turn of the engine."""
    is_left = True
    while is_left:
        with around():
            is_left = _run_slice(steps)
        await asyncio.sleep(0)


def _run_slice(steps: Iterator[object]) -> bool:
    """Run steps for one slice. Return False if none are left."""
    end_s = perf_counter() + SLICE_S
    for _ in steps:
        if perf_counter() >= end_s:
            return True
    return False
