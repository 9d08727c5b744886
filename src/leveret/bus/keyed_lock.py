"""A lock for each key, which exists only while a task holds it or waits for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class KeyedLock:
    """Locks by key."""

    def __init__(self) -> None:
        # Each lock with the number of tasks that hold it or wait for it.
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of this key for the block."""
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, users - 1
