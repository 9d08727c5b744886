"""Compaction of the log: copies live messages out of sparse files, so that the files can go.

A full file is sparse if less than `SPARSE_PERCENT` of its messages are live. Each live message is
written again, into the block that is being filled, and its old position is released when that block
is on disk. Then the file has no live message, and the log removes it. The work is done in slices on
the timer, none longer than a page, and never faster than the log can write. A file that consumers
are draining will be empty soon, so only a file that hardly changed for `STABLE_MS` is compacted.

The place of a live message decides how its holder learns the new position:

    paged out in its queue, or scheduled far ahead   the position there is replaced (`_copy_paged`)
    in memory                                        `Journal.moved` maps old to new (`_copy_index`)

Messages of the first kind are found in the queues. Messages of the second kind are found in the
file's index: their queue exists, they are not settled, and they were not copied yet. A message can
change from one kind to the other between two slices; `Journal.pinned` names these messages, and
they are skipped. A skipped message, or a queue with damage, keeps the file until the next attempt.

Spilled transient messages are copied as well, because they may wait for a long time.
"""

from collections.abc import Callable
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.engine.backlog.paged import PagedRun
from leveret.engine.broker import Broker
from leveret.engine.queues.queue import Queue
from leveret.engine.timer_queue import NEVER, Timed, earlier
from leveret.errors import CorruptionError
from leveret.journal.index import ENTRY_BYTES
from leveret.journal.journal import Journal
from leveret.journal.records import COPY_BYTES, NOWHERE, OFFSET_BITS, OFFSET_MASK
from leveret.storage.log_reader import LogReader
from leveret.storage.replay import body_size

SPARSE_PERCENT: Final = 30
# Check files again after this many released messages, or when a file is full.
CHECK_AFTER_RELEASES: Final = 1000
STABLE_MS: Final = 30_000  # a sparse file must stay almost unchanged for this time
RETRY_MS: Final = 600_000  # pause before the next attempt at a file that could not be emptied
RETRY_SOON_MS: Final = 1000  # the same pause, if messages were changing during the attempt
SLICE_INTERVAL_MS: Final = 5  # between two slices
LOG_BUSY_MS: Final = 20  # pause while the log is behind

SLICE_BYTES: Final = 1024 * 1024
_MESSAGES_PER_SLICE: Final = 1024
_QUEUES_PER_SLICE: Final = 1000
_ENTRIES_PER_SLICE: Final = 10_000  # of an index

# Phases of compacting a file, in order.
_IDLE: Final = 0
_VERIFY: Final = 1
_PAGED: Final = 2
_INDEX: Final = 3


class Compactor(Timed):
    """Empties sparse files, one at a time."""

    def __init__(
        self,
        broker: Broker,
        journal: Journal,
        pages: LogReader,
        covered_files: Callable[[], list[int]],
        read_index: Callable[[int], bytes | None],
    ) -> None:
        super().__init__()
        self._broker = broker
        self._journal = journal
        self._pages = pages
        # Returns the files that are kept only for their messages.
        self._covered_files = covered_files
        self._read_index = read_index
        self.bytes_max: i64 = 0  # a file with more bytes to copy than this is not sparse
        self.superseded: dict[int, set[int]] = {}  # offsets with a later copy, by file
        self.messages_copied: i64 = 0
        self.stable_ms: i64 = STABLE_MS
        # Live messages of a sparse file, and since when.
        self._sparse_since: dict[int, tuple[int, int]] = {}
        self._retry_at_ms: dict[int, int] = {}  # time of the next attempt, by file
        self._newest_checked: i64 = 0  # the newest file at the last check
        # State of the current file:
        self._phase: i64 = _IDLE
        self._file: i64 = NOWHERE
        self._messages_left: i64 = 0  # upper bound of the messages still to copy
        self._bytes_left: i64 = 0  # bytes that may still be copied
        self._copied_offsets: set[int] = set()  # offsets that were copied
        self._slot: i64 = 0  # the next queue to examine
        self._index = b""
        self._at: i64 = 0  # position in the index
        self._queues: dict[int, Queue] = {}  # by number in the log

    def is_check_due(self) -> bool:
        """Return True if enough has changed since the last check."""
        journal = self._journal
        return self._phase == _IDLE and (
            journal.releases >= CHECK_AFTER_RELEASES or journal.file != self._newest_checked
        )

    def check(self) -> bool:
        """Begin with the oldest sparse file that is stable; return True if the timer was armed."""
        assert self._phase == _IDLE
        self._journal.releases = 0
        self._newest_checked = self._journal.file
        files = self._covered_files()
        self._forget_removed(set(files))
        now_ms = self._broker.turn.now_ms
        next_ms: i64 = NEVER
        for file in files:
            if self._is_sparse(file) and now_ms >= self._retry_at_ms.get(file, 0):
                due_ms = self._stable_at_ms(file, now_ms)
                if due_ms <= now_ms:
                    self._begin_file(file)
                    self._broker.timers.arm(self, now_ms)
                    return True
                next_ms = earlier(next_ms, due_ms)
        if next_ms != NEVER:
            self._broker.timers.arm(self, next_ms)
        return next_ms != NEVER

    def _stable_at_ms(self, file: i64, now_ms: i64) -> i64:
        """Return the time at which the file will have been stable for long enough."""
        live: i64 = self._journal.live[file]
        noted = self._sparse_since.get(file)
        if noted is None or live * 10 < noted[0] * 9:
            noted = (live, now_ms)
            self._sparse_since[file] = noted
        return noted[1] + self.stable_ms

    def _forget_removed(self, there: set[int]) -> None:
        for file in [file for file in self.superseded if file not in there]:
            del self.superseded[file]
        for file in [file for file in self._sparse_since if file not in there]:
            del self._sparse_since[file]
            self._retry_at_ms.pop(file, None)

    def _is_sparse(self, file: i64) -> bool:
        live: i64 = self._journal.live.get(file, 0)
        total: i64 = self._journal.totals.get(file, 0)
        return live > 0 and live * 100 < total * SPARSE_PERCENT

    def _begin_file(self, file: i64) -> None:
        self._journal.begin_moving(file)
        self._file = file
        self._phase = _VERIFY
        self._messages_left = self._journal.live[file]
        self._bytes_left = self.bytes_max
        self._copied_offsets = self.superseded.setdefault(file, set())
        self._slot = 0

    def stop(self) -> None:
        """Stop compacting: the log can no longer be written."""
        if self._phase != _IDLE:
            self._end_file()
        self._broker.timers.disarm(self)

    def _end_file(self) -> None:
        self._journal.end_moving()
        self._phase = _IDLE
        self._index = b""
        self._queues = {}
        self._copied_offsets = set()

    def on_due(self, now_ms: i64) -> i64:
        if self._phase == _IDLE:
            self.check()
            return NEVER
        if self._journal.size() >= SLICE_BYTES:
            return now_ms + LOG_BUSY_MS
        retry_ms: i64 = RETRY_SOON_MS if self._journal.pinned else RETRY_MS
        try:
            is_done = self._do_slice()
        except (CorruptionError, OSError):
            is_done = True  # the reader of a damaged message will report it
            retry_ms = RETRY_MS
        if self._bytes_left < 0:
            is_done = True
            retry_ms = RETRY_MS
        if not is_done:
            return now_ms + SLICE_INTERVAL_MS
        self._retry_at_ms[self._file] = now_ms + retry_ms
        self._end_file()
        self.check()
        return NEVER

    def _do_slice(self) -> bool:
        """Do one slice; return True if the file is done."""
        if self._phase == _VERIFY:
            if self._pages.verify(self._file, SLICE_BYTES):
                self._phase = _PAGED
            return False
        if self._phase == _PAGED:
            if self._copy_paged():
                self._phase = _INDEX
                if self._messages_left > 0:
                    self._open_index()
            return self._messages_left <= 0
        return self._copy_index()

    def _copy_paged(self) -> bool:
        """Copy messages that queues hold as positions; return True if none is left."""
        queues = self._broker.slots.queues
        looked = 0
        while self._slot < len(queues) and looked < _QUEUES_PER_SLICE:
            queue = queues[self._slot]
            if _is_sound(queue):
                assert queue is not None
                if self._copy_line(queue) or self._copy_scheduled(queue):
                    return False
            looked += 1
            self._slot += 1
        return self._slot >= len(queues)

    def _copy_line(self, queue: Queue) -> bool:
        """Copy a page of the queue's paged-out messages; return False if the file has none."""
        for line in queue.ready.paged_lines():
            run = line.find(self._file)
            if run is not None:
                line.move(run, self._copy(run))
                return True
        return False

    def _copy_scheduled(self, queue: Queue) -> bool:
        """Copy a page of scheduled messages that are only in the log; False if there are none."""
        found = queue.scheduled.in_log.find(self._file, _MESSAGES_PER_SLICE)
        if not found:
            return False
        by_seq = {one.seq: one for one in found}
        run = PagedRun(self._file)
        for position, seq in sorted([(one.position, one.seq) for one in found]):
            run.add(seq, i64(position) & OFFSET_MASK)
        positions = self._copy(run)
        for seq, position in zip(run.seqs, positions, strict=False):
            by_seq[seq].move(position)
        return True

    def _copy(self, run: PagedRun) -> list[int]:
        """Copy the next messages of a run, and return their new positions. The run is unchanged."""
        payloads = self._pages.payloads(run)
        at = run.at
        for payload in payloads:
            _require_seq(payload, run.seqs[at])
            at += 1
        positions: list[int] = []
        at = run.at
        for payload in payloads:
            offset: i64 = run.offsets[at]
            size: i64 = len(payload)
            old = self._file << OFFSET_BITS | offset
            positions.append(self._journal.rewrite(payload, body_size(payload, 0, size), old))
            self._copied_offsets.add(offset)
            self._bytes_left -= size
            at += 1
        self._messages_left -= len(positions)
        self.messages_copied += len(positions)
        return positions

    def _open_index(self) -> None:
        index = self._read_index(self._file)
        self._index = index if index is not None else b""
        self._at = 0
        for queue in self._broker.slots.queues:
            if _is_sound(queue):
                assert queue is not None
                self._queues[queue.ledger.id] = queue

    def _copy_index(self) -> bool:
        """Copy messages that the next index entries name; return True at the end of the index."""
        candidates = self._next_in_memory()
        if candidates:
            run = PagedRun(self._file)
            for offset, seq, _ in candidates[:_MESSAGES_PER_SLICE]:
                run.add(seq, offset)
            positions = self._copy(run)
            for offset, position in zip(run.offsets, positions, strict=False):
                self._journal.moved[self._file << OFFSET_BITS | i64(offset)] = position
            if len(positions) < len(candidates):
                self._at = candidates[len(positions)][2]
        return self._at >= len(self._index)

    def _next_in_memory(self) -> list[tuple[int, int, int]]:
        """Return (offset, sequence number, index position) of messages in memory, in file order."""
        index = self._index
        at = self._at
        end: i64 = min(len(index), at + _ENTRIES_PER_SLICE * ENTRY_BYTES)
        by_queue: dict[int, list[tuple[int, int, int]]] = {}
        while end - at >= ENTRY_BYTES:
            number = i64(read_i32_be(index, at)) & 0xFFFFFFFF
            offset = i64(read_i32_be(index, at + 4)) & 0xFFFFFFFF
            if number in self._queues and self._may_copy(offset):
                place = (read_i64_be(index, at + 8), offset, at)
                by_queue.setdefault(number, []).append(place)
            at += ENTRY_BYTES
        self._at = at if end - at == 0 else end
        candidates: list[tuple[int, int, int]] = []
        for number, named in by_queue.items():
            queue = self._queues[number]
            if _is_sound(queue):
                live = set(queue.ledger.settled.missing(sorted([seq for seq, _, _ in named])))
                candidates.extend([(offset, seq, at) for seq, offset, at in named if seq in live])
        candidates.sort()
        return candidates

    def _may_copy(self, offset: i64) -> bool:
        if offset in self._copied_offsets:
            return False
        return self._file << OFFSET_BITS | offset not in self._journal.pinned


def _is_sound(queue: Queue | None) -> bool:
    """Return True if the messages of a queue may be copied.

    Damaged messages refer to files by position, so a queue with damage is left as it is.
    """
    return queue is not None and not queue.deleted and not queue.ready.damaged


def _require_seq(payload: bytes, seq: int) -> None:
    if len(payload) < COPY_BYTES or read_i64_be(payload, 8) != seq:
        raise CorruptionError("a message is not at its position")
