"""Stores of handled messages, so that a duplicate is not handled again.

A message is remembered after its handler succeeded and before it is acked. A crash in between means
that it is handled twice, never not at all. Both stores forget the oldest keys, so they stay
bounded.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol

from leveret.clock import Clock

KEYS_MAX: Final = 100_000
KEEP_S: Final = 7 * 24 * 3600.0
_FORGET_EVERY: Final = 1_000  # new keys between two deletions of old ones


class IdempotencyStore(Protocol):
    """Remembers keys of handled messages. A custom store needs these two methods."""

    async def seen(self, key: str) -> bool:
        """Return True if the message was handled before."""
        ...

    async def remember(self, key: str) -> None:
        """Note that the message was handled."""
        ...


class MemoryStore:
    """Remembers the newest keys in memory, for this process."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._keys: OrderedDict[str, None] = OrderedDict()

    async def seen(self, key: str) -> bool:
        return key in self._keys

    async def remember(self, key: str) -> None:
        self._keys[key] = None
        while len(self._keys) > self._keys_max:
            self._keys.popitem(last=False)


class SqliteStore:
    """Remembers keys in a file for `keep_s` seconds. Processes of one machine may share it."""

    def __init__(self, path: Path, *, keep_s: float = KEEP_S, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._keep_ms = round(keep_s * 1000)
        self._lock = threading.Lock()
        self._added = 0
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS handled (key TEXT PRIMARY KEY, at_ms INTEGER NOT NULL)"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS handled_at ON handled (at_ms)")

    async def seen(self, key: str) -> bool:
        return await asyncio.to_thread(self._seen, key)

    async def remember(self, key: str) -> None:
        await asyncio.to_thread(self._remember, key)

    def close(self) -> None:
        with self._lock, contextlib.closing(self._database):
            pass

    def _seen(self, key: str) -> bool:
        with self._lock:
            found = self._database.execute("SELECT 1 FROM handled WHERE key = ?", (key,))
            return found.fetchone() is not None

    def _remember(self, key: str) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            self._database.execute("INSERT OR IGNORE INTO handled VALUES (?, ?)", (key, now_ms))
            self._added += 1
            if self._added % _FORGET_EVERY == 0:
                forgotten_ms = now_ms - self._keep_ms
                self._database.execute("DELETE FROM handled WHERE at_ms < ?", (forgotten_ms,))
