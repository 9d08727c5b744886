"""Positions of scheduled messages that are in the log and not in memory: 36 bytes each.

Messages are added in any order of due time and taken in order of due time, then serial. Serials
ascend in order of arrival.

    _tail      unsorted chunk: new messages are appended
    _chunks    sorted chunks; every serial in a chunk is below every serial in the next one
    _heads     heap of the first message of each sorted chunk

The tail is sorted and becomes a chunk when it is full, or when it holds the next due message. So
taking a message costs O(log chunks), and no turn sorts more than one chunk. A new chunk is joined
with small chunks before it. Otherwise a steady load of short delays would leave one chunk behind
for every long delay.
"""

from array import array
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.paged import without
from leveret.journal.records import OFFSET_BITS

CHUNK_MESSAGES: Final = 8192  # messages sorted at once: a few milliseconds
_INDEX_BITS: Final = 13  # bits of the index of a message in a chunk

assert 1 << _INDEX_BITS >= CHUNK_MESSAGES

# Due time, serial, sequence number, position in the log, body bytes.
ScheduledEntry = tuple[int, int, int, int, int]


class ScheduledChunk:
    """Messages as columns, sorted or not."""

    def __init__(self) -> None:
        self.at: i64 = 0  # entries before this place have been taken
        self.dues: array[int] = array("Q")
        self.serials: array[int] = array("Q")
        self.seqs: array[int] = array("Q")
        self.positions: array[int] = array("Q")
        self.sizes: array[int] = array("I")
        # Bounds: every message is in a log file, and has a sequence number, in these ranges.
        self.file_first: i64 = 1 << 62
        self.file_last: i64 = 0
        self.seq_first: i64 = 1 << 62
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
        """Return how many messages have not been taken."""
        return len(self.dues) - self.at

    def entry(self) -> ScheduledEntry:
        return self.entry_at(self.at)

    def entry_at(self, at: i64) -> ScheduledEntry:
        return (self.dues[at], self.serials[at], self.seqs[at], self.positions[at], self.sizes[at])

    def head(self) -> "tuple[int, int, ScheduledChunk]":
        return (self.dues[self.at], self.serials[self.at], self)

    def place_after(self, due_ms: i64, serial: i64) -> i64:
        """Return the place of the first message after a due time and serial, in a sorted chunk."""
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
        """Return the messages after a due time and serial, in any order, of an unsorted chunk."""
        found: list[ScheduledEntry] = []
        at = self.at
        while at < len(self.dues):
            due: i64 = self.dues[at]
            if due > due_ms or (due == due_ms and i64(self.serials[at]) > serial):
                found.append(self.entry_at(at))
            at += 1
        return found

    def places_of(self, wanted: set[int]) -> list[int]:
        """Return the places of the messages with these sequence numbers."""
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
        """Remove the messages at these places, which ascend."""
        if self.at > 0:
            places = [place - self.at for place in places]
        self.dues = without(self.dues[self.at :], places)
        self.serials = without(self.serials[self.at :], places)
        self.seqs = without(self.seqs[self.at :], places)
        self.positions = without(self.positions[self.at :], places)
        self.sizes = without(self.sizes[self.at :], places)
        self.at = 0

    def find(self, file: i64, most: i64, found: "list[ScheduledPosition]") -> None:
        """Append messages in this log file to `found` until it has `most` items."""
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
    """The position of one message, and its place in a chunk. Valid until the end of the turn."""

    def __init__(self, chunk: ScheduledChunk, at: i64) -> None:
        self._chunk = chunk
        self._at = at
        self.seq: i64 = chunk.seqs[at]
        self.position: i64 = chunk.positions[at]

    def move(self, position: i64) -> None:
        """Set a new position: the message was copied to another log file."""
        self._chunk.positions[self._at] = position
        self._chunk.note_file(position >> OFFSET_BITS)


def _is_worth_joining(old: i64, new: i64) -> bool:
    """Return True if an old chunk should be sorted again together with new messages.

    Each message is sorted again about once for every doubling of its chunk.
    """
    return old <= 2 * new and old + new <= CHUNK_MESSAGES


def _joined(chunks: list[ScheduledChunk]) -> ScheduledChunk:
    """Return a new chunk with the messages that are left in these chunks, older ones first."""
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
    """Sort a chunk from which nothing was taken by due time; equal times keep their order."""
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
    """The scheduled messages of one queue that are only in the log."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._tail = ScheduledChunk()
        self._tail_due_ms: i64 = 0  # due time and serial of the earliest message in the tail
        self._tail_serial: i64 = 0
        self._chunks: list[ScheduledChunk] = []
        self._heads: list[tuple[int, int, ScheduledChunk]] = []

    def add(self, due_ms: i64, serial: i64, seq: i64, position: i64, size: i64) -> None:
        """Add a message; its serial must be above all earlier ones."""
        tail = self._tail
        if tail.left() == 0 or due_ms < self._tail_due_ms:
            self._tail_due_ms = due_ms
            self._tail_serial = serial
        tail.add(due_ms, serial, seq, position, size)
        self.count += 1
        if tail.left() >= CHUNK_MESSAGES:
            self._seal()

    def next(self) -> tuple[int, int]:
        """Return due time and serial of the next message; there must be one."""
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
        """Take the next messages in order: at least one, at most `most`, about `bytes_max`."""
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
        """Sort the tail together with small chunks before it, and add the result to the chunks."""
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
        """Return all messages in order, without taking them."""
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
        """Return the message with this sequence number, or None."""
        for chunk in [*self._chunks, self._tail]:
            at = chunk.at
            while at < len(chunk.seqs):
                if i64(chunk.seqs[at]) == seq:
                    return chunk.entry_at(at)
                at += 1
        return None

    def after(self, due_ms: i64, serial: i64, most: i64) -> list[ScheduledEntry]:
        """Return up to `most` messages after a due time and serial, in order; they stay here."""
        heads: list[tuple[int, int, int, ScheduledChunk]] = []  # the next message of each chunk
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
        """Return the chunks that are not empty.

        Serials ascend from chunk to chunk, and inside a chunk among messages of equal due time.
        """
        return [chunk for chunk in [*self._chunks, self._tail] if chunk.left() != 0]

    def entries_of(self, wanted: set[int]) -> list[ScheduledEntry]:
        """Return the messages with these sequence numbers, in any order, without taking them."""
        found: list[ScheduledEntry] = []
        for chunk in self.chunks():
            found.extend([chunk.entry_at(place) for place in chunk.places_of(wanted)])
        return found

    def remove(self, wanted: set[int]) -> None:
        """Remove the messages with these sequence numbers."""
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
        """Find the earliest message of the tail again."""
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
        """Return how many messages are in each log file."""
        counts: dict[int, int] = {}
        for chunk in [*self._chunks, self._tail]:
            for position in chunk.positions[chunk.at :]:
                file = position >> OFFSET_BITS
                counts[file] = counts.get(file, 0) + 1
        return counts

    def find(self, file: i64, most: i64) -> list[ScheduledPosition]:
        """Return up to `most` messages that are in a log file, in any order."""
        found: list[ScheduledPosition] = []
        for chunk in self._chunks:
            chunk.find(file, most, found)
        self._tail.find(file, most, found)
        return found
