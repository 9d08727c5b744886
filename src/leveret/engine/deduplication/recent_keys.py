"""A bounded set of keys with the time each was added. A million keys take about 35 MiB.

A key is a digest of 128 bits. Keys are numbered in the order in which they were added, and stored
in pages in that order. The oldest keys are dropped first, so pages are filled at the end and
dropped at the front. A full page is stored in the format of the log:

    page = (time_ms:i64){4096} (high:i64 low:i64){4096}                                98,304 bytes

A hash table with open addressing finds a key. It has 32 shards that grow and shrink separately, so
that no single addition pays for moving the whole table.

    shard of a key = its high half & 31        place in the shard = its low half & (length - 1)
    entry of a shard = 0 if empty, else 1 + (number of the key) mod (2^31 - 1)

Invariant: each key number from `_head` to `_end` has one entry in its shard, and there is no other
entry. The same key can be stored twice: it was added again after its time window, and the older
one has not been dropped yet.

The time of a key is negative if its message was not written to the log. Such a key does not
survive a restart.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from librt.vecs import append, vec
from mypy_extensions import i32, i64

from leveret.journal.records import KEY_BYTES

PAGE_KEYS: Final = 4096
PAGE_BYTES: Final = 98_304
_PAGE_BITS: Final = 12
_PAGE_MASK: Final = 4095
_DIGESTS_AT: Final = 32_768
_SHARDS: Final = 32
_SHARD_LENGTH_MIN: Final = 8
_NUMBERS: Final = 0x7FFFFFFF  # entries hold key numbers modulo this; far fewer keys exist at once


class _Page:
    """A full page: PAGE_KEYS keys, oldest first."""

    def __init__(self, data: bytes, has_unlogged: bool) -> None:
        self.data = data
        self.has_unlogged = has_unlogged  # some times are negative


class RecentKeys:
    """A bounded set of digests that drops the oldest first."""

    def __init__(self, size: i64) -> None:
        self._size = size  # most keys in the set
        self._pages: list[_Page] = []  # full pages; the last page is in the two columns below
        self._times: vec[i64] = vec[i64]([])
        self._digests: vec[i64] = vec[i64]([])  # high and low half in turn
        self._first: i64 = 0  # number of the first key of the first page
        self._head: i64 = 0  # number of the oldest key
        self._end: i64 = 0  # number that the next key gets
        self._latest_ms: i64 = 0  # no key has a later time
        self._shards: list[vec[i32]] = _empty_shards()
        self._counts: vec[i64] = vec[i64]([0] * _SHARDS)  # entries of each shard

    def clear(self) -> None:
        """Drop all keys."""
        self._pages.clear()
        self._times = vec[i64]([])
        self._digests = vec[i64]([])
        self._first = 0
        self._head = 0
        self._end = 0
        self._latest_ms = 0
        self._shards = _empty_shards()
        self._counts = vec[i64]([0] * _SHARDS)

    def count(self) -> i64:
        return self._end - self._head

    def oldest_ms(self) -> i64:
        """Return when the oldest key was added; 0 = there is none."""
        return _unsigned(self._time(self._head)) if self._end > self._head else 0

    def added_ms(self, digest: bytes, after_ms: i64) -> i64:
        """Return when a key was added if that was after `after_ms`, else 0.

        The time is negative if the key is not in the log.
        """
        high = read_i64_be(digest, 0)
        low = read_i64_be(digest, 8)
        shard = self._shards[high & (_SHARDS - 1)]
        mask = len(shard) - 1
        at = low & mask
        entry = i64(shard[at])
        while entry != 0:
            number = self._number(entry)
            if self._half(number, 1) == low and self._half(number, 0) == high:
                time_ms = self._time(number)
                if _unsigned(time_ms) > after_ms:
                    return time_ms
            at = (at + 1) & mask
            entry = i64(shard[at])
        return 0

    def add(self, digest: bytes, time_ms: i64) -> None:
        """Add a key that is not in the set; if the set is full, drop the oldest key."""
        self._add_key(read_i64_be(digest, 0), read_i64_be(digest, 8), time_ms)

    def _add_key(self, high: i64, low: i64, time_ms: i64) -> None:
        assert time_ms != 0
        if self._end - self._head >= self._size:
            self._drop_oldest()
        number = self._end
        self._times = append(self._times, time_ms)
        self._digests = append(append(self._digests, high), low)
        self._end = number + 1
        self._insert(high, low, number, time_ms)
        if len(self._times) == PAGE_KEYS:
            self._seal()

    def forget(self, until_ms: i64, most: i64) -> None:
        """Drop keys that were added up to a time, oldest first, at most `most` of them.

        If all keys are that old, drop them all at once.
        """
        if self._latest_ms <= until_ms:
            self.clear()
            return
        while most > 0 and self._end > self._head and self.oldest_ms() <= until_ms:
            self._drop_oldest()
            most -= 1

    def _seal(self) -> None:
        """Turn the last page, which is full, into a `_Page`."""
        has_unlogged = False
        for time_ms in self._times:
            if time_ms < 0:
                has_unlogged = True
        self._pages.append(_Page(_encode(self._times, self._digests), has_unlogged))
        self._times = vec[i64]([])
        self._digests = vec[i64]([])

    def _time(self, number: i64) -> i64:
        index = (number - self._first) >> _PAGE_BITS
        place = number & _PAGE_MASK
        if index < len(self._pages):
            return read_i64_be(self._pages[index].data, 8 * place)
        return self._times[place]

    def _half(self, number: i64, which: i64) -> i64:
        """Return the high (0) or low (1) half of a key's digest."""
        index = (number - self._first) >> _PAGE_BITS
        place = 2 * (number & _PAGE_MASK) + which
        if index < len(self._pages):
            return read_i64_be(self._pages[index].data, _DIGESTS_AT + 8 * place)
        return self._digests[place]

    def _drop_oldest(self) -> None:
        number = self._head
        self._remove(self._half(number, 0) & (_SHARDS - 1), number)
        self._head = number + 1
        if number & _PAGE_MASK == _PAGE_MASK:
            self._pages.pop(0)
            self._first += PAGE_KEYS

    def _number(self, entry: i64) -> i64:
        """Return the number of the key that an entry of a shard stands for."""
        head = self._head
        return head + (entry - 1 - head % _NUMBERS) % _NUMBERS

    def _insert(self, high: i64, low: i64, number: i64, time_ms: i64) -> None:
        self._latest_ms = max(self._latest_ms, _unsigned(time_ms))
        index = high & (_SHARDS - 1)
        count = self._counts[index] + 1
        length = len(self._shards[index])
        if count * 3 > length * 2:
            self._resize(index, 2 * length)
        self._counts[index] = count
        _put_entry(self._shards[index], low, number % _NUMBERS + 1)

    def _remove(self, index: i64, number: i64) -> None:
        shard = self._shards[index]
        mask = len(shard) - 1
        wanted = number % _NUMBERS + 1
        at = self._half(number, 1) & mask
        while i64(shard[at]) != wanted:
            at = (at + 1) & mask
        self._close_gap(shard, at)
        count = self._counts[index] - 1
        self._counts[index] = count
        if count * 8 < mask and mask >= 4 * _SHARD_LENGTH_MIN:
            self._resize(index, (mask + 1) >> 2)

    def _close_gap(self, shard: vec[i32], gap: i64) -> None:
        """Move entries behind a gap into it, if a search would not find them across the gap."""
        mask = len(shard) - 1
        at = (gap + 1) & mask
        entry = i64(shard[at])
        while entry != 0:
            home = self._half(self._number(entry), 1) & mask
            if (at - home) & mask >= (at - gap) & mask:
                shard[gap] = i32(entry)
                gap = at
            at = (at + 1) & mask
            entry = i64(shard[at])
        shard[gap] = 0

    def _resize(self, index: i64, length: i64) -> None:
        new = _empty_shard(length)
        for value in self._shards[index]:
            entry = i64(value)
            if entry != 0:
                _put_entry(new, self._half(self._number(entry), 1), entry)
        self._shards[index] = new

    def logged(self) -> list[bytes]:
        """Return the keys that must survive a restart, oldest first, in blocks.

        A block holds all times, then all digests. The first block can include keys of a full page
        that were dropped already: after the restart they are too old, or too many, again.
        """
        found: list[bytes] = []
        skipped = self._head - self._first
        for page in self._pages:
            if page.has_unlogged:
                times, digests = _decode(page.data)
                found.append(_encode_logged(times, digests, skipped))
            else:
                found.append(page.data)
            skipped = 0
        found.append(_encode_logged(self._times, self._digests, skipped))
        return [data for data in found if data]

    def load(self, pages: list[bytes], rest: bytes) -> None:
        """Add the keys that were read from the log to an empty set.

        `pages` are full pages of `logged`. `rest` holds time and digest of each key after them.
        """
        assert self._end == 0
        for data in pages:
            self._add_page(data)
        at: i64 = 0
        while at < len(rest):
            self._add_key(
                read_i64_be(rest, at + 8), read_i64_be(rest, at + 16), read_i64_be(rest, at)
            )
            at += KEY_BYTES

    def _add_page(self, data: bytes) -> None:
        assert len(data) == PAGE_BYTES
        assert len(self._times) == 0
        self._pages.append(_Page(data, False))
        first = self._end
        self._end = first + PAGE_KEYS
        for place in range(PAGE_KEYS):
            number = first + place
            time_ms = self._time(number)
            self._insert(self._half(number, 0), self._half(number, 1), number, time_ms)
        while self._end - self._head > self._size:
            self._drop_oldest()


def _empty_shard(length: i64) -> vec[i32]:
    return vec[i32]([0] * length)


def _empty_shards() -> list[vec[i32]]:
    return [_empty_shard(_SHARD_LENGTH_MIN) for _ in range(_SHARDS)]


def _unsigned(time_ms: i64) -> i64:
    """Return a time without its sign, which says whether the key is in the log."""
    return -time_ms if time_ms < 0 else time_ms


def _put_entry(shard: vec[i32], low: i64, entry: i64) -> None:
    mask = len(shard) - 1
    at = low & mask
    while shard[at] != 0:
        at = (at + 1) & mask
    shard[at] = i32(entry)


def _encode(times: vec[i64], digests: vec[i64]) -> bytes:
    writer = BytesWriter()
    for time_ms in times:
        write_i64_be(writer, time_ms)
    for half in digests:
        write_i64_be(writer, half)
    return writer.getvalue()


def _encode_logged(times: vec[i64], digests: vec[i64], skipped: i64) -> bytes:
    """Encode the keys that were neither dropped nor left out of the log."""
    kept_times: vec[i64] = vec[i64]([])
    kept: vec[i64] = vec[i64]([])
    for place in range(skipped, len(times)):
        if times[place] > 0:
            kept_times = append(kept_times, times[place])
            kept = append(append(kept, digests[2 * place]), digests[2 * place + 1])
    return _encode(kept_times, kept)


def _decode(data: bytes) -> tuple[vec[i64], vec[i64]]:
    times: vec[i64] = vec[i64]([])
    digests: vec[i64] = vec[i64]([])
    at: i64 = 0
    while at < len(data):
        if at < _DIGESTS_AT:
            times = append(times, read_i64_be(data, at))
        else:
            digests = append(digests, read_i64_be(data, at))
        at += 8
    return times, digests
