"""Scheduled messages of one queue: held back until they are due.

Up to a window of messages is in memory, in a heap by due time, then by order of arrival. Further
messages stay in the log (`ScheduledInLog`). They are read back a page at a time, when the next due
message is one of them. So a million scheduled messages take little memory and no extra time.

Invariant: the next message is the earlier of the head of the heap and the next one in the log.
"""

from array import array
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.page_reader import QueuePageReader
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.scheduled_in_log import ScheduledEntry, ScheduledInLog
from leveret.engine.message import Message
from leveret.errors import CorruptionError
from leveret.journal.records import NOWHERE, OFFSET_BITS, OFFSET_MASK

WINDOW: Final = 8192  # messages in memory; further messages stay in the log
WINDOW_BYTES: Final = 16 * 1024 * 1024  # bodies in memory

MESSAGE_BYTES: Final = 350  # a message in memory without header and body
ENTRY_BYTES: Final = 36  # a message that is only a position in the log

_PAGE: Final = 512  # messages read back at once; they may be anywhere in the log
_PAGE_BYTES: Final = 1024 * 1024


# Due time, serial, and the message; None if it was not read.
DueMessage = tuple[int, int, Message | None]


class Scheduled:
    """The scheduled messages of one queue, by due time."""

    def __init__(self) -> None:
        self.body_bytes: i64 = 0
        self.window: i64 = WINDOW
        self.pages: QueuePageReader | None = None  # None without a log
        self.in_log = ScheduledInLog()
        self.damaged: list[PagedRun] = []  # messages that cannot be read
        self._heap: list[tuple[int, int, Message]] = []
        self._heap_bytes: i64 = 0  # headers and bodies in memory
        self.serial: int = 0  # the last serial; serials give the order among equal due times

    def __len__(self) -> int:
        return len(self._heap) + self.in_log.count

    def is_full(self) -> bool:
        """Return True if the next message to be added belongs in the log."""
        return self.pages is not None and (
            len(self._heap) >= self.window or self._heap_bytes >= WINDOW_BYTES
        )

    def add(self, message: Message, due_ms: i64) -> None:
        if message.position != NOWHERE and self.is_full():
            self.add_in_log(message.seq, due_ms, message.position, len(message.body))
            return
        self.serial += 1
        self.body_bytes += len(message.body)
        self._push(due_ms, self.serial, message)

    def add_in_log(self, seq: i64, due_ms: i64, position: i64, body_bytes: i64) -> None:
        """Add a message by its position in the log."""
        self.serial += 1
        self.body_bytes += body_bytes
        self.in_log.add(due_ms, self.serial, seq, position, body_bytes)

    def _push(self, due_ms: int, serial: int, message: Message) -> None:
        self._heap_bytes += len(message.body) + len(message.header)
        heappush(self._heap, (due_ms, serial, message))

    def next_due_ms(self) -> i64:
        """Return when the next message is due; 0 = there is none."""
        if self._is_log_next():
            return self.in_log.next()[0]
        return self._heap[0][0] if self._heap else 0

    def _is_log_next(self) -> bool:
        if self.in_log.count == 0:
            return False
        if not self._heap:
            return True
        due_ms, serial = self.in_log.next()
        first = self._heap[0]
        return serial < first[1] if due_ms == first[0] else due_ms < first[0]

    def pop_due(self, now_ms: i64) -> Message | None:
        """Take the next message if it is due.

        Raise CorruptionError if the log is damaged there. The unreadable messages are moved to
        `damaged` first, so that a second call goes on with the messages after them.
        """
        if self._is_log_next():
            if self.in_log.next()[0] > now_ms:
                return None
            self._load(self.in_log.take(_PAGE, _PAGE_BYTES))
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        message = heappop(self._heap)[2]
        self._heap_bytes -= len(message.body) + len(message.header)
        self.body_bytes -= len(message.body)
        return message

    def _load(self, entries: list[ScheduledEntry]) -> None:
        """Read a page of messages from the log into memory."""
        by_seq = {entry[2]: entry for entry in entries}
        fault: CorruptionError | None = None
        for run in _runs(entries):
            try:
                self._load_run(run, by_seq)
            except CorruptionError as found:
                fault = found
                self._load_each(run, by_seq)
        if fault is not None:
            raise fault

    def _load_run(self, run: PagedRun, by_seq: dict[int, ScheduledEntry]) -> None:
        pages = self.pages
        assert pages is not None
        while run.left() != 0:
            for message in pages.take(run):
                entry = by_seq[message.seq]
                self._push(entry[0], entry[1], message)

    def _load_each(self, run: PagedRun, by_seq: dict[int, ScheduledEntry]) -> None:
        """Read a damaged page message by message, and move the unreadable ones to `damaged`."""
        for seq, offset in zip(run.seqs[run.at :], run.offsets[run.at :], strict=True):
            one = PagedRun(run.file)
            one.add(seq, offset)
            try:
                self._load_run(one, by_seq)
            except CorruptionError:
                self.damaged.append(one)
                self.body_bytes -= by_seq[seq][4]

    def in_order_of_arrival(self) -> "array[int]":
        """Return the sequence numbers of all messages.

        Messages with the same due time are in order of arrival. Messages with different due times
        may be in any order: each chunk of the log is sorted by due time.
        """
        in_memory = [(serial, message.seq) for _, serial, message in self._heap]
        in_memory.sort()
        seqs: array[int] = array("Q")
        at = 0
        for chunk in self.in_log.chunks():
            last = max(chunk.serials[chunk.at :])
            start = at
            while at < len(in_memory) and in_memory[at][0] <= last:
                at += 1
            if at == start:
                seqs.extend(chunk.seqs[chunk.at :])
                continue
            in_chunk = zip(chunk.serials[chunk.at :], chunk.seqs[chunk.at :], strict=True)
            seqs.extend([seq for _, seq in sorted([*in_memory[start:at], *in_chunk])])
        seqs.extend([seq for _, seq in in_memory[at:]])
        return seqs

    def find_in_memory(self, wanted: set[int]) -> list[tuple[int, Message]]:
        """Return due times and messages of these numbers that are in memory; they stay here."""
        return [(due, message) for due, _, message in self._heap if message.seq in wanted]

    def read(self, entries: list[ScheduledEntry]) -> list[tuple[int, Message]]:
        """Read messages of the log and return them with their due times, in any order.

        The messages are new objects, and the entries stay. Unreadable messages are left out.
        """
        pages = self.pages
        assert pages is not None
        dues = {entry[2]: entry[0] for entry in entries}
        found: list[tuple[int, Message]] = []
        for run in _runs(entries):
            while run.left() != 0:
                found.extend([(dues[message.seq], message) for message in pages.read_on(run)])
        return found

    def remove(self, messages: list[Message]) -> None:
        """Remove messages that `find_in_memory` or `read` returned."""
        wanted = {message.seq for message in messages}
        kept: list[tuple[int, int, Message]] = []
        for entry in self._heap:
            if entry[2].seq in wanted:
                self._heap_bytes -= len(entry[2].body) + len(entry[2].header)
            else:
                kept.append(entry)
        if len(kept) != len(self._heap):
            heapify(kept)
            self._heap = kept
        if self.in_log.count != 0:
            self.in_log.remove(wanted)
        for message in messages:
            self.body_bytes -= len(message.body)

    def clear(self) -> list[object]:
        """Remove everything, and return the objects that were in memory, for `LazyFree`."""
        held: list[object] = list(self._heap)
        self._heap = []
        self._heap_bytes = 0
        self.in_log = ScheduledInLog()
        self.body_bytes = 0
        return held

    def memory_bytes(self) -> i64:
        """Estimate the memory of all scheduled messages."""
        return self._heap_bytes + len(self._heap) * MESSAGE_BYTES + self.in_log.count * ENTRY_BYTES

    def messages(self) -> list[Message]:
        """Return all messages in memory, in any order."""
        return [message for _, _, message in self._heap]

    def entries(self) -> list[tuple[int, Message]]:
        """Return all messages with their due times, in the order in which they are due.

        Messages of the log are read and stay there.
        """
        listed = list(self._heap)
        in_log = self.in_log.entries()
        by_seq = {entry[2]: entry for entry in in_log}
        for run in _runs(in_log):
            while run.left() != 0:
                assert self.pages is not None
                messages = self.pages.peek(run)
                run.advance(len(messages))
                for message in messages:
                    entry = by_seq[message.seq]
                    listed.append((entry[0], entry[1], message))
        return [(due, message) for due, _, message in sorted(listed)]

    def find(self, seq: i64) -> tuple[int, Message | None] | None:
        """Return due time and message of a sequence number; None if there is no such message.

        The message inside the tuple is None if it cannot be read.
        """
        for due_ms, _, message in self._heap:
            if message.seq == seq:
                return (due_ms, message)
        entry = self.in_log.entry_of(seq)
        if entry is None:
            return None
        found: dict[int, Message] = {}
        for run in _runs([entry]):
            self._sift(run, b"", found)
        return (entry[0], found.get(seq))

    def after(self, due_ms: i64, serial: i64, most: i64, needle: bytes) -> list[DueMessage]:
        """Return up to `most` messages after a due time and serial, in order; they stay here.

        A message in the log is read only if it may contain the needle; otherwise, and if it is
        unreadable, the message in its tuple is None.
        """
        in_log = self.in_log.after(due_ms, serial, min(most, _PAGE))
        listed: list[DueMessage] = [(e[0], e[1], None) for e in in_log]
        if len(in_log) == _PAGE:  # the log may have more: take nothing beyond its last one
            last = (in_log[-1][0], in_log[-1][1])
            heap = _heap_after(self._heap, (due_ms, serial), most)
            listed.extend([entry for entry in heap if (entry[0], entry[1]) < last])
        else:
            listed.extend(_heap_after(self._heap, (due_ms, serial), most))
        listed.sort(key=_time)
        listed = listed[:most]
        return self._fill_in(listed, in_log, needle)

    def _fill_in(
        self, listed: list[DueMessage], in_log: list[ScheduledEntry], needle: bytes
    ) -> list[DueMessage]:
        """Replace each None by the message of the log, if it may contain the needle."""
        if not listed or not in_log:
            return listed
        last = (listed[-1][0], listed[-1][1])
        entries = [entry for entry in in_log if (entry[0], entry[1]) <= last]
        seqs = {entry[1]: entry[2] for entry in entries}
        found: dict[int, Message] = {}
        for run in _runs(entries):
            self._sift(run, needle, found)
        filled: list[DueMessage] = []
        for due_ms, serial, message in listed:
            if message is None:
                message = found.get(seqs[serial])
            filled.append((due_ms, serial, message))
        return filled

    def _sift(self, run: PagedRun, needle: bytes, found: dict[int, Message]) -> None:
        pages = self.pages
        assert pages is not None
        while run.left() != 0:
            try:
                messages, count = pages.sift(run, needle)
            except CorruptionError:
                run.at += pages.unreadable(run)
                continue
            run.at += count
            for message in messages:
                found[message.seq] = message


def _time(entry: DueMessage) -> tuple[int, int]:
    return (entry[0], entry[1])


def _heap_after(
    heap: list[tuple[int, int, Message]], key: tuple[int, int], most: i64
) -> list[DueMessage]:
    """Return up to `most` entries of a heap after a key, in order, without sorting the heap."""
    heads: list[tuple[int, int, int]] = []  # the first entry of each branch: key and index
    passed: list[int] = [0]
    while passed:
        index = passed.pop()
        if index >= len(heap):
            continue
        entry = heap[index]
        if (entry[0], entry[1]) > key:
            heads.append((entry[0], entry[1], index))
        else:
            passed.append(2 * index + 1)
            passed.append(2 * index + 2)
    heapify(heads)
    found: list[DueMessage] = []
    while heads and len(found) < most:
        index = heappop(heads)[2]
        found.append(heap[index])
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heappush(heads, (heap[child][0], heap[child][1], child))
    return found


def _runs(entries: list[ScheduledEntry]) -> list[PagedRun]:
    """Group messages by log file and sort them by offset, so that neighbours are read together."""
    runs: list[PagedRun] = []
    places = [(position, seq) for _, _, seq, position, _ in entries]
    places.sort()
    for position, seq in places:
        if not runs or runs[-1].file != position >> OFFSET_BITS:
            runs.append(PagedRun(position >> OFFSET_BITS))
        runs[-1].add(seq, position & OFFSET_MASK)
    return runs
