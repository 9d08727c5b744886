"""Scheduled messages that are only positions in the log: 36 bytes each instead of an object.

They come in any order of time. New ones go to `_tail`, as they come; when it is long, or when one
of them is the next of all, it is sorted and becomes a `ScheduledChunk`. The next message is the first of
some chunk, found by a heap of their heads, so that taking a page of messages costs O(log chunks)
each, and no turn ever sorts more than a chunk. Small chunks are joined, lest a steady stream of
short delays leave one behind for every long delay.

Order is by due time, then by serial: that is the order of arrival.
"""

from array import array
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.paged import without
from leveret.journal.records import OFFSET_BITS

CHUNK_MESSAGES: Final = 8192  # messages sorted at once: a few milliseconds
_INDEX_BITS: Final = 13  # of a message in a chunk

assert 1 << _INDEX_BITS >= CHUNK_MESSAGES

# A message on its way back: due time, serial, sequence number, position, body bytes.
ScheduledEntry = tuple[int, int, int, int, int]


class ScheduledChunk:
    """Messages as columns, by time once it is sorted."""

    def __init__(self) -> None:
        self.at: i64 = 0  # those before have been taken
        self.dues: array[int] = array("Q")
        self.serials: array[int] = array("Q")
        self.seqs: array[int] = array("Q")
        self.positions: array[int] = array("Q")
        self.sizes: array[int] = array("I")
        self.file_first: i64 = 1 << 62  # no message stands in an older file
        self.file_last: i64 = 0  # or in a younger one
        self.seq_first: i64 = 1 << 62  # the same of sequence numbers
        self.seq_last: i64 = 0

    def add(self, due_ms: i64, serial: i64, seq: i64, position: i64, size: i64) -> None:
        self.dues.append(due_ms)
        self.serials.append(serial)
        self.seqs.append(seq)
        self.positions.append(position)
        self.sizes.append(size)
        self.note_file(position >> OFFSET_BITS)
        self.note_seq(seq)

    def note_file(self, file: i64) -> None:
        self.file_first = min(self.file_first, file)
        self.file_last = max(self.file_last, file)

    def note_seq(self, seq: i64) -> None:
        self.seq_first = min(self.seq_first, seq)
        self.seq_last = max(self.seq_last, seq)

    def left(self) -> i64:
        return len(self.dues) - self.at

    def entry(self) -> ScheduledEntry:
        return self.entry_at(self.at)

    def entry_at(self, at: i64) -> ScheduledEntry:
        return (self.dues[at], self.serials[at], self.seqs[at], self.positions[at], self.sizes[at])

    def head(self) -> "tuple[int, int, ScheduledChunk]":
        return (self.dues[self.at], self.serials[self.at], self)

    def place_after(self, due_ms: i64, serial: i64) -> i64:
        """Where the messages begin that follow a due time and serial; it is sorted."""
        low = self.at
        high: i64 = len(self.dues)
        while low < high:
            middle = (low + high) // 2
            due: i64 = self.dues[middle]
            if due < due_ms or (due == due_ms and i64(self.serials[middle]) <= serial):
                low = middle + 1
            else:
                high = middle
        return low

    def entries_after(self, due_ms: i64, serial: i64) -> list[ScheduledEntry]:
        """The same where it is not sorted."""
        found: list[ScheduledEntry] = []
        at = self.at
        while at < len(self.dues):
            due: i64 = self.dues[at]
            if due > due_ms or (due == due_ms and i64(self.serials[at]) > serial):
                found.append(self.entry_at(at))
            at += 1
        return found

    def places_of(self, wanted: set[int]) -> list[int]:
        """Where the messages with these sequence numbers are."""
        if not any(self.seq_first <= seq <= self.seq_last for seq in wanted):
            return []
        at = self.at
        end: i64 = len(self.seqs)
        found: list[int] = []
        while at < end:
            if self.seqs[at] in wanted:
                found.append(at)
            at += 1
        return found

    def remove(self, places: list[int]) -> None:
        """Take the messages at these places, which ascend, out of the middle."""
        if self.at > 0:
            places = [place - self.at for place in places]
        self.dues = without(self.dues[self.at :], places)
        self.serials = without(self.serials[self.at :], places)
        self.seqs = without(self.seqs[self.at :], places)
        self.positions = without(self.positions[self.at :], places)
        self.sizes = without(self.sizes[self.at :], places)
        self.at = 0

    def find(self, file: i64, most: i64, found: "list[ScheduledPosition]") -> None:
        """Add the places of messages in this log file, up to so many in all."""
        if not self.file_first <= file <= self.file_last:
            return
        at = self.at
        end: i64 = len(self.positions)
        positions = self.positions
        while at < end and len(found) < most:
            if i64(positions[at]) >> OFFSET_BITS == file:
                found.append(ScheduledPosition(self, at))
            at += 1


class ScheduledPosition:
    """The place of one message in its chunk; good for this turn."""

    def __init__(self, chunk: ScheduledChunk, at: i64) -> None:
        self._chunk = chunk
        self._at = at
        self.seq: i64 = chunk.seqs[at]
        self.position: i64 = chunk.positions[at]

    def move(self, position: i64) -> None:
        """The message stands elsewhere now."""
        self._chunk.positions[self._at] = position
        self._chunk.note_file(position >> OFFSET_BITS)


def _is_worth_joining(old: i64, new: i64) -> bool:
    """Whether to sort an old chunk again: each message is, about once for every doubling."""
    return old <= 2 * new and old + new <= CHUNK_MESSAGES


def _joined(chunks: list[ScheduledChunk]) -> ScheduledChunk:
    """What is left of some chunks, older ones first."""
    joined = ScheduledChunk()
    for chunk in chunks:
        at = chunk.at
        joined.dues.extend(chunk.dues[at:])
        joined.serials.extend(chunk.serials[at:])
        joined.seqs.extend(chunk.seqs[at:])
        joined.positions.extend(chunk.positions[at:])
        joined.sizes.extend(chunk.sizes[at:])
        joined.note_file(chunk.file_first)
        joined.note_file(chunk.file_last)
        joined.note_seq(chunk.seq_first)
        joined.note_seq(chunk.seq_last)
    return joined


def _sort(chunk: ScheduledChunk) -> None:
    """Put a chunk that nothing was taken from in order of time; equal times stay as they are."""
    keys: list[int] = []
    index: i64 = 0
    for due_ms in chunk.dues:
        keys.append(due_ms << _INDEX_BITS | index)
        index += 1
    ordered = sorted(keys)
    if ordered == keys:
        return
    pick = itemgetter(*[key & (1 << _INDEX_BITS) - 1 for key in ordered])
    chunk.dues = array("Q", pick(chunk.dues))
    chunk.serials = array("Q", pick(chunk.serials))
    chunk.seqs = array("Q", pick(chunk.seqs))
    chunk.positions = array("Q", pick(chunk.positions))
    chunk.sizes = array("I", pick(chunk.sizes))


class ScheduledInLog:
    """Messages by due time, in the log alone."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._tail = ScheduledChunk()  # as they came
        self._tail_due_ms: i64 = 0  # the earliest in it
        self._tail_serial: i64 = 0
        self._chunks: list[ScheduledChunk] = []  # serials ascend from one to the next
        self._heads: list[tuple[int, int, ScheduledChunk]] = []  # heap

    def add(self, due_ms: i64, serial: i64, seq: i64, position: i64, size: i64) -> None:
        """Add a message; serials ascend."""
        tail = self._tail
        if tail.left() == 0 or due_ms < self._tail_due_ms:
            self._tail_due_ms = due_ms
            self._tail_serial = serial
        tail.add(due_ms, serial, seq, position, size)
        self.count += 1
        if tail.left() >= CHUNK_MESSAGES:
            self._seal()

    def next(self) -> tuple[int, int]:
        """Due time and serial of the next message; there is one."""
        if self._is_tail_next():
            return (self._tail_due_ms, self._tail_serial)
        due_ms, serial, _ = self._heads[0]
        return (due_ms, serial)

    def _is_tail_next(self) -> bool:
        if self._tail.left() == 0:
            return False
        if not self._heads:
            return True
        due_ms, serial, _ = self._heads[0]
        if self._tail_due_ms == due_ms:
            return self._tail_serial < serial
        return self._tail_due_ms < due_ms

    def take(self, most: i64, bytes_max: i64) -> list[ScheduledEntry]:
        """The next messages in order: at least one, and no more than so many."""
        if self._is_tail_next():
            self._seal()
        found: list[ScheduledEntry] = []
        total: i64 = 0
        while len(found) < most and total < bytes_max and self._heads:
            if found and self._is_tail_next():
                break
            entry = self._pop()
            found.append(entry)
            total += entry[4]
        self.count -= len(found)
        return found

    def _pop(self) -> ScheduledEntry:
        chunk = self._heads[0][2]
        entry = chunk.entry()
        chunk.at += 1
        if chunk.left() != 0:
            heapreplace(self._heads, chunk.head())
        else:
            heappop(self._heads)
            self._chunks.remove(chunk)
        return entry

    def _seal(self) -> None:
        """Sort the tail, together with small chunks before it."""
        chunks = self._chunks
        joined = [self._tail]
        total = self._tail.left()
        while chunks and _is_worth_joining(chunks[-1].left(), total):
            joined.insert(0, chunks.pop())
            total += joined[0].left()
        made = _joined(joined) if len(joined) > 1 else self._tail
        _sort(made)
        chunks.append(made)
        self._heads = [chunk.head() for chunk in chunks]
        heapify(self._heads)
        self._tail = ScheduledChunk()

    def entries(self) -> list[ScheduledEntry]:
        """All messages, in order; they stay."""
        listed: list[ScheduledEntry] = []
        for chunk in [*self._chunks, self._tail]:
            at = chunk.at
            while chunk.left() != 0:
                listed.append(chunk.entry())
                chunk.at += 1
            chunk.at = at
        listed.sort()
        return listed

    def entry_of(self, seq: i64) -> ScheduledEntry | None:
        """A message by its number."""
        for chunk in [*self._chunks, self._tail]:
            at = chunk.at
            while at < len(chunk.seqs):
                if i64(chunk.seqs[at]) == seq:
                    return chunk.entry_at(at)
                at += 1
        return None

    def after(self, due_ms: i64, serial: i64, most: i64) -> list[ScheduledEntry]:
        """The messages that follow a due time and serial, in order; they stay."""
        heads: list[tuple[int, int, int, ScheduledChunk]] = []  # the next one of each chunk
        for chunk in self._chunks:
            at = chunk.place_after(due_ms, serial)
            if at < len(chunk.dues):
                heads.append((chunk.dues[at], chunk.serials[at], at, chunk))
        heapify(heads)
        found: list[ScheduledEntry] = []
        while heads and len(found) < most:
            _, _, at, chunk = heads[0]
            found.append(chunk.entry_at(at))
            at += 1
            if at < len(chunk.dues):
                heapreplace(heads, (chunk.dues[at], chunk.serials[at], at, chunk))
            else:
                heappop(heads)
        young = self._tail.entries_after(due_ms, serial)
        if young:
            found.extend(young)
            found.sort()
        return found[:most]

    def chunks(self) -> list[ScheduledChunk]:
        """The messages in parts: serials ascend from one to the next, and among equal times."""
        return [chunk for chunk in [*self._chunks, self._tail] if chunk.left() != 0]

    def entries_of(self, wanted: set[int]) -> list[ScheduledEntry]:
        """The messages with these sequence numbers, in no order; they stay."""
        found: list[ScheduledEntry] = []
        for chunk in self.chunks():
            found.extend([chunk.entry_at(place) for place in chunk.places_of(wanted)])
        return found

    def remove(self, wanted: set[int]) -> None:
        """Take out the messages with these sequence numbers."""
        for chunk in self.chunks():
            places = chunk.places_of(wanted)
            if places:
                chunk.remove(places)
                self.count -= len(places)
        self._chunks = [chunk for chunk in self._chunks if chunk.left() != 0]
        self._heads = [chunk.head() for chunk in self._chunks]
        heapify(self._heads)
        self._note_tail()

    def _note_tail(self) -> None:
        """Find the earliest message of the tail anew."""
        tail = self._tail
        at = tail.at
        end: i64 = len(tail.dues)
        if at < end:
            self._tail_due_ms, self._tail_serial = tail.dues[at], tail.serials[at]
        while at < end:
            if tail.dues[at] < self._tail_due_ms:
                self._tail_due_ms = tail.dues[at]
                self._tail_serial = tail.serials[at]
            at += 1

    def counts(self) -> dict[int, int]:
        """How many messages stand in each log file."""
        counts: dict[int, int] = {}
        for chunk in [*self._chunks, self._tail]:
            for position in chunk.positions[chunk.at :]:
                file = position >> OFFSET_BITS
                counts[file] = counts.get(file, 0) + 1
        return counts

    def find(self, file: i64, most: i64) -> list[ScheduledPosition]:
        """Up to so many messages that stand in a log file, in no order."""
        found: list[ScheduledPosition] = []
        for chunk in self._chunks:
            chunk.find(file, most, found)
        self._tail.find(file, most, found)
        return found
