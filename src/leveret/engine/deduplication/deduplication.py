"""Deduplication: what a queue or an exchange remembers of the messages that publishers sent it.

A publish whose key is known is a duplicate: it is confirmed and goes no further. The key is the
value of a header, or the property `message_id`; what has none is never a duplicate. Only publishes
of clients are looked at (`commands/publishing.py`): what the broker moves by itself (dead
letters, messages that were delayed, those that come back) is neither dropped nor remembered.

A key is remembered when its message was taken, never before, and is written to the log right behind
it, in the same block: both are on disk or neither is. The key of a message that is not written to
the log is not either, and ends with the node, as the message does.
"""

from hashlib import blake2b
from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.queue_arguments import DeduplicationSettings
from leveret.engine.deduplication.recent_keys import RecentKeys
from leveret.engine.timer_queue import NEVER, Timed, TimerQueue
from leveret.journal.journal import Journal
from leveret.wire.scan import DOUBLE, LONG, LONGSTR, TIMESTAMP
from leveret.wire.tables import INTEGERS, Field, encode_table

# With a million keys known, the chance that a new one has the digest of an old one is 3 * 10^-33.
DIGEST_BYTES: Final = 16
NO_KEY: Final = b""

# Keys dropped by one wake-up before other work gets its turn again, and the least time between two.
FORGET_BATCH: Final = 5000
FORGET_EVERY_MS: Final = 1000


class Deduplication(Timed):
    """The memory of one queue or exchange."""

    def __init__(
        self, settings: DeduplicationSettings, number: i64, durable: bool, timers: TimerQueue
    ) -> None:
        super().__init__()
        self.id = number  # names it in the log: that of its queue, or an exchange's own
        self.durable = durable  # remembers across a restart, where there is a log
        self.header = settings.header
        self.window_ms = settings.window_ms
        self._timers = timers
        self.size = settings.size
        self._keys = RecentKeys(settings.size)

    def is_like(self, settings: DeduplicationSettings) -> bool:
        """Whether what is known serves for other settings too."""
        return self.header == settings.header and self.size == settings.size

    def count(self) -> i64:
        """How many keys take up memory."""
        return self._keys.count()

    def added_ms(self, key: bytes, now_ms: i64) -> i64:
        """When the key was remembered, negative if its message is not in the log; 0 if never."""
        return self._keys.added_ms(key, now_ms - self.window_ms)

    def remember(self, key: bytes, now_ms: i64, journal: Journal | None) -> None:
        """The message was taken; it was written to the journal where one is given."""
        if journal is None:
            self._keys.add(key, -now_ms)
        else:
            self._keys.add(key, now_ms)
            if self.durable:
                journal.write_key(self.id, now_ms, key)
        if self.wake_ms == NEVER:
            self._timers.arm(self, now_ms + self.window_ms)

    def on_due(self, now_ms: i64) -> i64:
        """Drop what is too old. It no longer counts before that: this gives its memory back."""
        keys = self._keys
        keys.forget(now_ms - self.window_ms, FORGET_BATCH)
        if keys.count() == 0:
            return NEVER
        due_ms = keys.oldest_ms() + self.window_ms
        return now_ms if due_ms <= now_ms else max(due_ms, now_ms + FORGET_EVERY_MS)

    def write(self, journal: Journal) -> None:
        """Write all that must survive, for a checkpoint."""
        for columns in self._keys.logged():
            journal.write_keys(self.id, columns)

    def load(self, pages: list[bytes], rest: bytes) -> None:
        """Remember what the log kept: see `RecentKeys.load`."""
        self._keys.load(pages, rest)
        if self._keys.count() != 0:
            self._timers.arm(self, self._keys.oldest_ms() + self.window_ms)

    def close(self) -> None:
        """Its queue or exchange is deleted."""
        self._timers.disarm(self)
        self._keys.clear()


def key_of(field: Field | None) -> bytes:
    """What stands for a value in memory and in the log; NO_KEY for none, and for an empty text.

    Values are the same as headers exchanges see them: whole numbers by value whatever their width,
    text and binary by their octets; a text is no number.
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
