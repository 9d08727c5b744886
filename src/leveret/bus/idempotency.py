"""Stores of handled messages, so that a duplicate is not handled again.

A store knows three states of a message. It is free, or claimed by one process until its lease ends,
or done. A claim is one atomic step, so that of two processes that get the same message only one
handles it; the other one lets its copy wait. If a process dies, its claim ends with the lease.

    free ── claim ──► claimed ── finish ──► done
      ▲                  │
      └── release, or the lease ends

A message is done after its handler succeeded and before it is acked. A crash in between means that
it is handled twice, never not at all. Stores forget old messages, so they stay bounded.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections import OrderedDict
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from leveret.clock import Clock

KEYS_MAX: Final = 100_000
KEEP_S: Final = 7 * 24 * 3600.0
DONE: Final = ""  # the owner of a message that is handled
_FORGET_EVERY: Final = 1_000  # new keys between two deletions of old ones
_BUSY_S: Final = 30.0  # for another process that writes to the same file


def claim_key(queue: str, message_id: str) -> str:
    """Return the key of a message: services that share a store have queues of their own."""
    return f"{queue}/{message_id}"


class ClaimState(StrEnum):
    """The answer to a claim."""

    CLAIMED = "claimed"  # the caller may handle the message
    HELD = "held"  # another process handles it now
    DONE = "done"  # it was handled before


class IdempotencyStore(Protocol):
    """Remembers messages. A custom store needs these three methods; `claim` must be atomic."""

    async def claim(self, key: str, owner: str, lease_s: float) -> ClaimState:
        """Claim a message for this owner, for the time of the lease."""
        ...

    async def finish(self, key: str, owner: str) -> None:
        """Note that the message was handled."""
        ...

    async def release(self, key: str, owner: str) -> None:
        """Give the claim of this owner up, because the handler failed."""
        ...


class MemoryStore:
    """Remembers the newest messages in memory, for this process."""

    def __init__(self, keys_max: int = KEYS_MAX, clock: Clock | None = None) -> None:
        self._keys_max = keys_max
        self._clock = clock or Clock()
        self._keys: OrderedDict[str, tuple[str, int]] = OrderedDict()  # owner, end of the lease

    async def claim(self, key: str, owner: str, lease_s: float) -> ClaimState:
        now_ms = self._clock.now_ms()
        found = self._keys.get(key)
        if found is not None and found[0] == DONE:
            return ClaimState.DONE
        if found is not None and found[0] != owner and found[1] > now_ms:
            return ClaimState.HELD
        self._keys[key] = owner, now_ms + round(lease_s * 1000)
        while len(self._keys) > self._keys_max:
            self._keys.popitem(last=False)
        return ClaimState.CLAIMED

    async def finish(self, key: str, owner: str) -> None:
        self._keys[key] = DONE, 0
        self._keys.move_to_end(key)

    async def release(self, key: str, owner: str) -> None:
        if self._keys.get(key, (DONE, 0))[0] == owner:
            del self._keys[key]


class SqliteStore:
    """Remembers messages in a file for `keep_s` seconds. Processes of one machine may share it."""

    def __init__(self, path: Path, *, keep_s: float = KEEP_S, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._keep_ms = round(keep_s * 1000)
        self._lock = threading.Lock()
        self._added = 0
        self._database = sqlite3.connect(
            path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None
        )
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL,"
            " at_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL)"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS claims_at ON claims (at_ms)")

    async def claim(self, key: str, owner: str, lease_s: float) -> ClaimState:
        return await asyncio.to_thread(self._claim, key, owner, lease_s)

    async def finish(self, key: str, owner: str) -> None:
        await asyncio.to_thread(self._finish, key)

    async def release(self, key: str, owner: str) -> None:
        await asyncio.to_thread(self._release, key, owner)

    def close(self) -> None:
        with self._lock, contextlib.closing(self._database):
            pass

    def _claim(self, key: str, owner: str, lease_s: float) -> ClaimState:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + round(lease_s * 1000)
        with self._lock:
            # One statement is atomic between processes. It changes a claim only if it may.
            changed = self._database.execute(
                "INSERT INTO claims VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
                " SET owner = excluded.owner, at_ms = excluded.at_ms, until_ms = excluded.until_ms"
                " WHERE claims.owner = excluded.owner"
                f" OR (claims.owner <> '{DONE}' AND claims.until_ms <= excluded.at_ms)",
                (key, owner, now_ms, until_ms),
            )
            if changed.rowcount:
                self._forget_old(now_ms)
                return ClaimState.CLAIMED
            found = self._database.execute("SELECT owner FROM claims WHERE key = ?", (key,))
            row = found.fetchone()
        return ClaimState.DONE if row is not None and row[0] == DONE else ClaimState.HELD

    def _finish(self, key: str) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            self._database.execute(
                "INSERT INTO claims VALUES (?, ?, ?, 0) ON CONFLICT (key) DO UPDATE"
                " SET owner = excluded.owner, at_ms = excluded.at_ms",
                (key, DONE, now_ms),
            )

    def _release(self, key: str, owner: str) -> None:
        with self._lock:
            self._database.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, owner))

    def _forget_old(self, now_ms: int) -> None:
        self._added += 1
        if self._added % _FORGET_EVERY == 0:
            forgotten_ms = now_ms - self._keep_ms
            self._database.execute("DELETE FROM claims WHERE at_ms < ?", (forgotten_ms,))
