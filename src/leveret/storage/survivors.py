"""Copies the survivors of sparse log files, so that a few messages do not keep a file on disk.

A full file with less than `SPARSE_PERCENT` of its messages left is emptied: each of these is
written once more, into the block that is being filled, and its old position is released when that
block is on disk. Then nothing lives in the file, and the log removes it. This happens in slices on
the pulse, none longer than a page, and never faster than the log takes them. A file that is being
worked off will be empty by itself: only one that hardly changed for `WAIT_MS` is copied.

Where a survivor is decides how its holder hears of the new position:

    in a line of its queue, or distant    the position there is replaced (`_copy_held`)
    in memory, as a message               `Journal.moved` remembers it (`_copy_index`)

The first kind is found in the queues. The second is what the file's index holds besides: of a
queue that is there, not gone, and not copied before. Between two slices messages change from one
kind to the other; `Journal.pinned` keeps those out that did. What is missed by that, or belongs to
a queue with damage, keeps the file until it is looked at again.

Messages that were spilled are copied as well: a queue of transient messages may wait for long.
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
from leveret.storage.pages import LogPages
from leveret.storage.replay import body_size

SPARSE_PERCENT: Final = 30
LOOK_AFTER: Final = 1000  # messages gone before files are looked at again; or when one is full
WAIT_MS: Final = 30_000  # that a sparse file must stay as it is
RETRY_MS: Final = 600_000  # before a file that could not be emptied is looked at again
RETRY_SOON_MS: Final = 1000  # the same, where messages were in motion
PACE_MS: Final = 5  # between two slices
BUSY_MS: Final = 20  # to wait while the log is behind

SLICE_BYTES: Final = 1024 * 1024
_PAGE: Final = 1024  # messages copied in a slice
_QUEUES: Final = 1000  # queues looked at in a slice
_ENTRIES: Final = 10_000  # entries of an index looked at in a slice

# What is done with a file, in this order.
_IDLE: Final = 0
_VERIFY: Final = 1
_HELD: Final = 2
_INDEX: Final = 3


class Survivors(Timed):
    """Empties sparse files, one at a time."""

    def __init__(
        self,
        broker: Broker,
        journal: Journal,
        pages: LogPages,
        covered_files: Callable[[], list[int]],
        read_index: Callable[[int], bytes | None],
    ) -> None:
        super().__init__()
        self._broker = broker
        self._journal = journal
        self._pages = pages
        self._covered_files = covered_files  # those that are kept for their messages alone
        self._read_index = read_index
        self.bytes_max: i64 = 0  # a file with more to copy than this is not sparse
        self.superseded: dict[int, set[int]] = {}  # offsets that were copied before, by file
        self.messages_copied: i64 = 0
        self.wait_ms: i64 = WAIT_MS
        self._noted: dict[int, tuple[int, int]] = {}  # messages in a sparse file, and since when
        self._not_before_ms: dict[int, int] = {}  # when to look again, by file
        self._seen_file: i64 = 0  # the newest file when files were looked at
        # The file at hand
        self._phase: i64 = _IDLE
        self._file: i64 = NOWHERE
        self._left: i64 = 0  # messages that are to be copied, at most
        self._bytes_left: i64 = 0  # that may be copied
        self._copied: set[int] = set()  # its offsets that do not count any more
        self._slot: i64 = 0  # of the next queue to be looked at
        self._index = b""
        self._at: i64 = 0  # in the index
        self._queues: dict[int, Queue] = {}  # by number in the log

    # Which file

    def wants_look(self) -> bool:
        """Whether enough has happened since files were looked at."""
        journal = self._journal
        return self._phase == _IDLE and (
            journal.releases >= LOOK_AFTER or journal.file != self._seen_file
        )

    def look(self) -> bool:
        """Begin with the oldest file that is worth it; whether the pulse was armed for any."""
        assert self._phase == _IDLE
        self._journal.releases = 0
        self._seen_file = self._journal.file
        files = self._covered_files()
        self._forget_removed(set(files))
        now_ms = self._broker.turn.now_ms
        next_ms: i64 = NEVER
        for file in files:
            if self._is_sparse(file) and now_ms >= self._not_before_ms.get(file, 0):
                due_ms = self._stable_ms(file, now_ms)
                if due_ms <= now_ms:
                    self._begin(file)
                    self._broker.timers.arm(self, now_ms)
                    return True
                next_ms = earlier(next_ms, due_ms)
        if next_ms != NEVER:
            self._broker.timers.arm(self, next_ms)
        return next_ms != NEVER

    def _stable_ms(self, file: i64, now_ms: i64) -> i64:
        """When the file will have been as it is for long enough."""
        live: i64 = self._journal.live[file]
        noted = self._noted.get(file)
        if noted is None or live * 10 < noted[0] * 9:
            noted = (live, now_ms)
            self._noted[file] = noted
        return noted[1] + self.wait_ms

    def _forget_removed(self, there: set[int]) -> None:
        for file in [file for file in self.superseded if file not in there]:
            del self.superseded[file]
        for file in [file for file in self._noted if file not in there]:
            del self._noted[file]
            self._not_before_ms.pop(file, None)

    def _is_sparse(self, file: i64) -> bool:
        live: i64 = self._journal.live.get(file, 0)
        total: i64 = self._journal.totals.get(file, 0)
        return live > 0 and live * 100 < total * SPARSE_PERCENT

    def _begin(self, file: i64) -> None:
        self._journal.begin_moving(file)
        self._file = file
        self._phase = _VERIFY
        self._left = self._journal.live[file]
        self._bytes_left = self.bytes_max
        self._copied = self.superseded.setdefault(file, set())
        self._slot = 0

    def stop(self) -> None:
        """Nothing is written any more."""
        if self._phase != _IDLE:
            self._end()
        self._broker.timers.disarm(self)

    def _end(self) -> None:
        self._journal.end_moving()
        self._phase = _IDLE
        self._index = b""
        self._queues = {}
        self._copied = set()

    # Slices

    def on_due(self, now_ms: i64) -> i64:
        if self._phase == _IDLE:
            self.look()
            return NEVER
        if self._journal.size() >= SLICE_BYTES:
            return now_ms + BUSY_MS
        retry_ms: i64 = RETRY_SOON_MS if self._journal.pinned else RETRY_MS
        try:
            is_done = self._step()
        except (CorruptionError, OSError):
            is_done = True  # whoever needs what cannot be read will say so
            retry_ms = RETRY_MS
        if self._bytes_left < 0:
            is_done = True
            retry_ms = RETRY_MS
        if not is_done:
            return now_ms + PACE_MS
        self._not_before_ms[self._file] = now_ms + retry_ms
        self._end()
        self.look()
        return NEVER

    def _step(self) -> bool:
        """Do one slice; whether that was the last."""
        if self._phase == _VERIFY:
            if self._pages.verify(self._file, SLICE_BYTES):
                self._phase = _HELD
            return False
        if self._phase == _HELD:
            if self._copy_held():
                self._phase = _INDEX
                if self._left > 0:
                    self._open_index()
            return self._left <= 0
        return self._copy_index()

    def _copy_held(self) -> bool:
        """Copy what queues hold as positions; whether nothing is left."""
        queues = self._broker.slots.queues
        looked = 0
        while self._slot < len(queues) and looked < _QUEUES:
            queue = queues[self._slot]
            if _is_sound(queue):
                assert queue is not None
                if self._copy_line(queue) or self._copy_distant(queue):
                    return False
            looked += 1
            self._slot += 1
        return self._slot >= len(queues)

    def _copy_line(self, queue: Queue) -> bool:
        """Copy a page of a line of the queue; False if nothing of it is in the file."""
        for line in queue.ready.paged_lines():
            run = line.find(self._file)
            if run is not None:
                line.move(run, self._copy(run))
                return True
        return False

    def _copy_distant(self, queue: Queue) -> bool:
        """Copy a page of the queue's distant messages; False if none is in the file."""
        spots = queue.scheduled.in_log.find(self._file, _PAGE)
        if not spots:
            return False
        by_seq = {spot.seq: spot for spot in spots}
        run = PagedRun(self._file)
        for place, seq in sorted([(spot.position, spot.seq) for spot in spots]):
            run.add(seq, i64(place) & OFFSET_MASK)
        positions = self._copy(run)
        for seq, position in zip(run.seqs, positions, strict=False):
            by_seq[seq].move(position)
        return True

    def _copy(self, run: PagedRun) -> list[int]:
        """Copy the next messages of a run, which stay in it; their new positions."""
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
            self._copied.add(offset)
            self._bytes_left -= size
            at += 1
        self._left -= len(positions)
        self.messages_copied += len(positions)
        return positions

    # What is in memory

    def _open_index(self) -> None:
        index = self._read_index(self._file)
        self._index = index if index is not None else b""
        self._at = 0
        for queue in self._broker.slots.queues:
            if _is_sound(queue):
                assert queue is not None
                self._queues[queue.ledger.id] = queue

    def _copy_index(self) -> bool:
        """Copy messages that the next entries of the index name; whether they were the last."""
        places = self._next_in_memory()
        if places:
            run = PagedRun(self._file)
            for offset, seq, _ in places[:_PAGE]:
                run.add(seq, offset)
            positions = self._copy(run)
            for offset, position in zip(run.offsets, positions, strict=False):
                self._journal.moved[self._file << OFFSET_BITS | i64(offset)] = position
            if len(positions) < len(places):
                self._at = places[len(positions)][2]
        return self._at >= len(self._index)

    def _next_in_memory(self) -> list[tuple[int, int, int]]:
        """Offsets, sequence numbers and entries of messages in memory, in order of the file."""
        index = self._index
        at = self._at
        end: i64 = min(len(index), at + _ENTRIES * ENTRY_BYTES)
        by_queue: dict[int, list[tuple[int, int, int]]] = {}
        while end - at >= ENTRY_BYTES:
            number = i64(read_i32_be(index, at)) & 0xFFFFFFFF
            offset = i64(read_i32_be(index, at + 4)) & 0xFFFFFFFF
            if number in self._queues and self._may_copy(offset):
                place = (read_i64_be(index, at + 8), offset, at)
                by_queue.setdefault(number, []).append(place)
            at += ENTRY_BYTES
        self._at = at if end - at == 0 else end
        places: list[tuple[int, int, int]] = []
        for number, named in by_queue.items():
            queue = self._queues[number]
            if _is_sound(queue):
                live = set(queue.ledger.settled.missing(sorted([seq for seq, _, _ in named])))
                places.extend([(offset, seq, at) for seq, offset, at in named if seq in live])
        places.sort()
        return places

    def _may_copy(self, offset: i64) -> bool:
        if offset in self._copied:
            return False
        return self._file << OFFSET_BITS | offset not in self._journal.pinned


def _is_sound(queue: Queue | None) -> bool:
    """Whether the messages of a queue may be copied.

    What was set aside refers to files by position: they are left as they are.
    """
    return queue is not None and not queue.deleted and not queue.ready.damaged


def _require_seq(payload: bytes, seq: int) -> None:
    if len(payload) < COPY_BYTES or read_i64_be(payload, 8) != seq:
        raise CorruptionError("a message is not where it should be")
