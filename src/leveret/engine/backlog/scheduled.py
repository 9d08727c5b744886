"""Scheduled messages of one queue: held back until their time has come.

Some are in memory, in a heap by due time, then by order of arrival. When there are many, further
ones that stand in the log are left there (`ScheduledInLog`), and read back a page at a time when
the next
message is one of them: a million waiting messages take little memory and do not slow the pulse.

Invariant: the next message is the earlier one of the heap's head and the next distant one.
"""

from array import array
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.paged import PagedRun, QueuePageReader
from leveret.engine.backlog.scheduled_in_log import ScheduledEntry, ScheduledInLog
from leveret.engine.message import Message
from leveret.errors import CorruptionError
from leveret.journal.records import NOWHERE, OFFSET_BITS, OFFSET_MASK

WINDOW: Final = 8192  # messages in memory before further ones are left to the log
WINDOW_BYTES: Final = 16 * 1024 * 1024

MESSAGE_BYTES: Final = 400  # a message in memory besides its body
ENTRY_BYTES: Final = 36  # a message that is only a position

_PAGE: Final = 512  # messages read back at once; they may be anywhere in the log
_PAGE_BYTES: Final = 1024 * 1024


# A message that waits: due time, serial, and the message where it is at hand.
DueMessage = tuple[int, int, Message | None]


class Scheduled:
    """Messages by due time."""

    def __init__(self) -> None:
        self.body_bytes: i64 = 0
        self.window: i64 = WINDOW
        self.pages: QueuePageReader | None = None  # where there is a log
        self.in_log = ScheduledInLog()
        self.damaged: list[PagedRun] = []  # messages that cannot be read
        self._heap: list[tuple[int, int, Message]] = []
        self._heap_bytes: i64 = 0  # bodies in memory
        self.serial: int = 0  # the last one: order of arrival among equal due times

    def __len__(self) -> int:
        return len(self._heap) + self.in_log.count

    def is_full(self) -> bool:
        """Whether a further message belongs into the log."""
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
        """Add a message that is in the log alone."""
        self.serial += 1
        self.body_bytes += body_bytes
        self.in_log.add(due_ms, self.serial, seq, position, body_bytes)

    def _push(self, due_ms: int, serial: int, message: Message) -> None:
        self._heap_bytes += len(message.body)
        heappush(self._heap, (due_ms, serial, message))

    def next_due_ms(self) -> i64:
        """When the next message is due; 0 = there is none."""
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

        Where the log is damaged, what cannot be read is set aside: it is no longer counted, and
        Corrupt is raised. Whoever asks again finds what is left.
        """
        if self._is_log_next():
            if self.in_log.next()[0] > now_ms:
                return None
            self._load(self.in_log.take(_PAGE, _PAGE_BYTES))
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        message = heappop(self._heap)[2]
        self._heap_bytes -= len(message.body)
        self.body_bytes -= len(message.body)
        return message

    def _load(self, entries: list[ScheduledEntry]) -> None:
        """Read a page of distant messages back."""
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
        """Read what can be read of a damaged page, and set the rest aside."""
        for seq, offset in zip(run.seqs[run.at :], run.offsets[run.at :], strict=True):
            one = PagedRun(run.file)
            one.add(seq, offset)
            try:
                self._load_run(one, by_seq)
            except CorruptionError:
                self.damaged.append(one)
                self.body_bytes -= by_seq[seq][4]

    def in_order_of_arrival(self) -> "array[int]":
        """The sequence numbers of all messages; those of one time in the order in which they came.

        Chunks of distant messages are in order of time each, which is all that is needed: only
        between messages of the same time the order of arrival counts.
        """
        near = [(serial, message.seq) for _, serial, message in self._heap]
        near.sort()
        seqs: array[int] = array("Q")
        at = 0
        for chunk in self.in_log.chunks():
            last = max(chunk.serials[chunk.at :])
            start = at
            while at < len(near) and near[at][0] <= last:
                at += 1
            if at == start:
                seqs.extend(chunk.seqs[chunk.at :])
                continue
            far = zip(chunk.serials[chunk.at :], chunk.seqs[chunk.at :], strict=True)
            seqs.extend([seq for _, seq in sorted([*near[start:at], *far])])
        seqs.extend([seq for _, seq in near[at:]])
        return seqs

    def near(self, wanted: set[int]) -> list[tuple[int, Message]]:
        """Due times and messages with these sequence numbers that are in memory; they stay."""
        return [(due, message) for due, _, message in self._heap if message.seq in wanted]

    def read(self, entries: list[ScheduledEntry]) -> list[tuple[int, Message]]:
        """Due times and messages of distant entries, in no order; they stay.

        They are objects of their own. What cannot be read is left out.
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
        """Take out messages that `near` or `read` gave."""
        wanted = {message.seq for message in messages}
        kept: list[tuple[int, int, Message]] = []
        for entry in self._heap:
            if entry[2].seq in wanted:
                self._heap_bytes -= len(entry[2].body)
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
        """Forget everything; what was held is returned so that it can be freed in slices."""
        held: list[object] = list(self._heap)
        self._heap = []
        self._heap_bytes = 0
        self.in_log = ScheduledInLog()
        self.body_bytes = 0
        return held

    def memory_bytes(self) -> i64:
        """What the schedule takes in memory, about."""
        return self._heap_bytes + len(self._heap) * MESSAGE_BYTES + self.in_log.count * ENTRY_BYTES

    def messages(self) -> list[Message]:
        """All messages in memory, in no order."""
        return [message for _, _, message in self._heap]

    def entries(self) -> list[tuple[int, Message]]:
        """All messages with their due times, in the order in which they will be due.

        Reads the distant ones from the log, and leaves them there.
        """
        listed = list(self._heap)
        distant = self.in_log.entries()
        by_seq = {entry[2]: entry for entry in distant}
        for run in _runs(distant):
            while run.left() != 0:
                assert self.pages is not None
                messages = self.pages.peek(run)
                run.advance(len(messages))
                for message in messages:
                    entry = by_seq[message.seq]
                    listed.append((entry[0], entry[1], message))
        return [(due, message) for due, _, message in sorted(listed)]

    def find(self, seq: i64) -> tuple[int, Message | None] | None:
        """A message by its number, with its due time; None inside: it cannot be read."""
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
        """The messages that follow a due time and serial, which stay.

        Those in the log alone are read if they have the bytes of `needle`; else they are None, as
        those that cannot be read.
        """
        distant = self.in_log.after(due_ms, serial, min(most, _PAGE))
        listed: list[DueMessage] = [(e[0], e[1], None) for e in distant]
        if len(distant) == _PAGE:  # there may be more: nothing beyond them can be taken yet
            last = (distant[-1][0], distant[-1][1])
            heap = _heap_after(self._heap, (due_ms, serial), most)
            listed.extend([entry for entry in heap if (entry[0], entry[1]) < last])
        else:
            listed.extend(_heap_after(self._heap, (due_ms, serial), most))
        listed.sort(key=_time)
        listed = listed[:most]
        return self._read_waiting(listed, distant, needle)

    def _read_waiting(
        self, listed: list[DueMessage], distant: list[ScheduledEntry], needle: bytes
    ) -> list[DueMessage]:
        """The same with the messages of the log that have the bytes."""
        if not listed or not distant:
            return listed
        last = (listed[-1][0], listed[-1][1])
        places = [entry for entry in distant if (entry[0], entry[1]) <= last]
        seqs = {entry[1]: entry[2] for entry in places}
        found: dict[int, Message] = {}
        for run in _runs(places):
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
    """The entries of a heap that follow a key, in order."""
    heads: list[tuple[int, int, int]] = []  # what is next of each branch: key and index
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
    """Messages by where they stand, so that neighbours are read together."""
    runs: list[PagedRun] = []
    places = [(position, seq) for _, _, seq, position, _ in entries]
    places.sort()
    for position, seq in places:
        if not runs or runs[-1].file != position >> OFFSET_BITS:
            runs.append(PagedRun(position >> OFFSET_BITS))
        runs[-1].add(seq, position & OFFSET_MASK)
    return runs
