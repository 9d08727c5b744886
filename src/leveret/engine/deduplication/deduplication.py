"""Deduplication: drop a publish whose key the queue or exchange remembers.

A duplicate is confirmed and goes no further. The key is the value of a header, or the property
`message_id`. A message without a key is never a duplicate. Only publishes of clients are checked
(`commands/publishing.py`). Messages that the broker moves itself are neither dropped nor
remembered: dead letters, delayed messages, returned messages.

A key is remembered after its message was taken. It is written to the log directly after the
message, in the same block: both are on disk, or neither is. If the message is not written to the
log, its key is not either, and both are lost when the node stops.
"""

from hashlib import blake2b
from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.queue_arguments import DeduplicationSettings
from leveret.engine.deduplication.key_room import KeyRoom
from leveret.engine.deduplication.recent_keys import RecentKeys
from leveret.engine.timer_queue import NEVER, Timed, TimerQueue
from leveret.journal.journal import Journal
from leveret.wire.scan import DOUBLE, LONG, LONGSTR, TIMESTAMP
from leveret.wire.tables import INTEGERS, Field, encode_table

# With a million keys, the chance that a new key has the digest of an old one is 3 * 10^-33.
DIGEST_BYTES: Final = 16
NO_KEY: Final = b""

FORGET_BATCH: Final = 5000  # keys dropped by one wake-up
FORGET_EVERY_MS: Final = 1000  # least time between two wake-ups, unless more keys are due


class Deduplication(Timed):
    """The remembered keys of one queue or exchange."""

    def __init__(
        self,
        settings: DeduplicationSettings,
        number: i64,
        durable: bool,
        timers: TimerQueue,
        room: KeyRoom,
    ) -> None:
        super().__init__()
        self.id = number  # its number in the log: the queue's, or `Exchange.deduplication_id`
        self.durable = durable  # remembers across a restart, if there is a log
        self.header = settings.header
        self.window_ms = settings.window_ms
        self._timers = timers
        self.size = settings.size
        self._keys = RecentKeys(settings.size)
        self._room = room
        self._room.objects += 1
        self._is_closed = False

    def is_like(self, settings: DeduplicationSettings) -> bool:
        """Return True if the remembered keys can be kept under other settings."""
        return self.header == settings.header and self.size == settings.size

    def count(self) -> i64:
        """Return how many keys are in memory, with keys that are too old but not dropped yet."""
        return self._keys.count()

    def added_ms(self, key: bytes, now_ms: i64) -> i64:
        """Return when a key was remembered; 0 = it is not remembered.

        The time is negative if its message is not in the log.
        """
        return self._keys.added_ms(key, now_ms - self.window_ms)

    def takes_key(self, now_ms: i64) -> bool:
        """Return True if there is room for another key. A full object forgets its oldest one."""
        keys = self._keys
        if self._room.takes(keys.count()) or keys.count() >= self.size:
            return True
        self._forget(now_ms)
        return self._room.takes(keys.count())

    def remember(self, key: bytes, now_ms: i64, journal: Journal | None) -> None:
        """Remember the key of a message that was taken.

        `journal` is given if the message was written to it.
        """
        before = self._keys.count()
        if journal is None:
            self._keys.add(key, -now_ms)
        else:
            self._keys.add(key, now_ms)
            if self.durable:
                journal.write_key(self.id, now_ms, key)
        self._room.add(self._keys.count() - before)
        if self.wake_ms == NEVER:
            self._timers.arm(self, now_ms + self.window_ms)

    def on_due(self, now_ms: i64) -> i64:
        """Drop keys that are too old, to free memory. `added_ms` ignores them already."""
        keys = self._keys
        self._forget(now_ms)
        if keys.count() == 0:
            return NEVER
        due_ms = keys.oldest_ms() + self.window_ms
        return now_ms if due_ms <= now_ms else max(due_ms, now_ms + FORGET_EVERY_MS)

    def _forget(self, now_ms: i64) -> None:
        before = self._keys.count()
        self._keys.forget(now_ms - self.window_ms, FORGET_BATCH)
        self._room.add(self._keys.count() - before)

    def write(self, journal: Journal) -> None:
        """Write all keys that must survive a restart, for a checkpoint."""
        for columns in self._keys.logged():
            journal.write_keys(self.id, columns)

    def load(self, pages: list[bytes], rest: bytes) -> None:
        """Remember the keys that were read from the log; see `RecentKeys.load`."""
        self._keys.load(pages, rest)
        self._room.add(self._keys.count())
        if self._keys.count() != 0:
            self._timers.arm(self, self._keys.oldest_ms() + self.window_ms)

    def close(self) -> None:
        """Drop all keys: the queue or exchange is deleted."""
        self._timers.disarm(self)
        self._room.add(-self._keys.count())
        self._keys.clear()
        if not self._is_closed:
            self._is_closed = True
            self._room.objects -= 1


def key_of(field: Field | None) -> bytes:
    """Return the digest of a key's value; NO_KEY if there is no value, or an empty text.

    Two values have the same digest if a headers exchange would call them equal. Whole numbers are
    compared by value whatever their width, text and binary by their octets. A text never equals a
    number.
    """
    if field is None or field.value is None:
        return NO_KEY
    value = field.value
    if isinstance(value, str):
        return _digest(LONGSTR, value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return _digest(LONGSTR, value)
    if isinstance(value, int) and (field.kind in INTEGERS or field.kind == TIMESTAMP):
        return _digest(LONG, str(value).encode())
    if isinstance(value, float):
        field = Field(DOUBLE, value)
    return _digest(field.kind, encode_table({"": field}))


def _digest(kind: int, data: bytes) -> bytes:
    if not data:
        return NO_KEY
    return blake2b(bytes((kind,)) + data, digest_size=DIGEST_BYTES).digest()
