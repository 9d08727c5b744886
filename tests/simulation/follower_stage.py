"""A follower's log on a fake disk, run by hand, and a model of the blocks that its leader sends.

`Leader` makes blocks as a leader does: messages, chunks of streams, trims, ROLL blocks with tables
of terms, of members and of files. It keeps the state after each block, so that a term can end and
the next one can begin at an older block. `expected_files` says which files a follower must have.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar, cast

from leveret.journal.chunks import ChunkWriter, WritePosition, WrittenChunk
from leveret.journal.cluster_records import encode_members_record, encode_nothing, encode_roll
from leveret.journal.journal import Journal
from leveret.journal.records import (
    FILES,
    MEMBERS_BLOCK,
    NORMAL_BLOCK,
    ROLL_BLOCK,
    TERM_BLOCK,
    encode_stamp,
)
from leveret.storage.blocks import HEAD_BYTES, encode_block_head, encode_head
from leveret.storage.file_names import RAFT, log_name, segment_name
from leveret.storage.follower_log import open_follower
from leveret.storage.raft_state import RaftState, read_raft_state
from leveret.storage.writer_thread import JobThread
from leveret.testing.disk import FakeDisk
from leveret.wire.tables import Field, Table, encode_table
from tests.simulation.storage_stage import ManualLoop

Job = TypeVar("Job")

SEGMENT_BYTES = 500
STREAMS = (7, 8)


def without_membership(disk: FakeDisk) -> FakeDisk:
    """Return a disk with the same files and a real thread, which a single node may use."""
    made = FakeDisk()
    for name, content in disk.contents().items():
        if name != RAFT:
            made.put(name, content)
    return made


class HandThread(Generic[Job]):
    """Does jobs when the test says so."""

    def __init__(self, do: Callable[[Job], None]) -> None:
        self._do = do
        self.jobs: deque[Job] = deque()

    def start(self) -> None:
        """Do nothing: the test runs the jobs."""

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def finish(self) -> None:
        while self.jobs:
            self.run_one()

    def run_one(self) -> None:
        self._do(self.jobs.popleft())


class HandDisk(FakeDisk):
    """A fake disk whose threads the test runs."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.threads: list[HandThread[object]] = []

    def make_thread(self, name: str, do: Callable[[Job], None]) -> JobThread[Job]:
        made = HandThread(do)
        self.threads.append(cast("HandThread[object]", made))
        return made


class Follower:
    """A follower on a disk. `run` does everything that waits."""

    def __init__(self, disk: HandDisk) -> None:
        self.disk = disk
        self.loop = ManualLoop()
        self.state = read_raft_state(disk) or RaftState("test", 2, "uid-2")
        self.faults: list[Exception] = []
        self.fulls: list[OSError] = []
        self.rooms = 0
        self.bases: list[int] = []
        self.acked = 0
        self.log, self.scan = open_follower(
            disk, cast(asyncio.AbstractEventLoop, self.loop), self.state
        )
        self.acked = self.scan.last_index
        self.log.on_fault = self.faults.append
        self.log.on_full = self.fulls.append
        self.log.on_room = self._on_room
        self.log.on_removed = self.bases.append

    def _on_room(self) -> None:
        self.rooms += 1

    def write(
        self, blocks: list[Block], cut_from: int = 0, state: RaftState | None = None
    ) -> list[int]:
        """Give blocks to the log; the list that is returned gets a number when they are synced."""
        told: list[int] = []
        arrived = [(b.index, b.term, b.kind, b.data) for b in blocks]
        last = blocks[-1].index if blocks else cut_from - 1
        self.log.write(state, cut_from, arrived, lambda: told.append(last))
        return told

    def run(self) -> None:
        """Run all jobs, and take their reports."""
        while any(thread.jobs for thread in self.disk.threads) or not self.loop.reports.empty():
            for thread in self.disk.threads:
                if thread.jobs:
                    thread.run_one()
            while not self.loop.reports.empty():
                self.loop.reports.get().run()

    def run_timers(self) -> None:
        for timer in list(self.loop.waiting()):
            timer.run()
        self.run()

    def read(self, first: int, last: int, bytes_max: int = 1 << 20) -> list[tuple[int, int, bytes]]:
        answers: list[list[tuple[int, int, bytes]]] = []
        self.log.read_blocks(first, last, bytes_max, answers.append)
        self.run()
        return answers[0]

    @property
    def base(self) -> int:
        return max([self.scan.base_index, *self.bases])

    def all_blocks(self) -> list[bytes]:
        """Return the bytes of all blocks after the base."""
        found: list[bytes] = []
        self.run()
        first = self.base + 1
        while blocks := self.read(first + len(found), 1 << 40):
            found += [data for _, _, data in blocks]
        return found


class Block:
    """A block of the model."""

    def __init__(self, index: int, term: int, kind: int, records: list[bytes]) -> None:
        self.index = index
        self.term = term
        self.kind = kind
        pieces = [encode_stamp(1000 + index, term, kind), *records]
        self.data = encode_block_head(pieces, index) + b"".join(pieces)

    @classmethod
    def of(cls, index: int, term: int, kind: int, data: bytes) -> Block:
        """Return a block that a real leader has made."""
        made = cls(index, term, kind, [])
        made.data = data
        return made


class _Model:
    """The state of the leader after a block."""

    def __init__(self) -> None:
        self.term = 0
        self.terms: list[tuple[int, int]] = [(0, 0)]
        self.members = b"m0"
        self.file = 1
        self.firsts: dict[int, int] = {1: 1}  # first block of each log file
        self.listed: set[int] = set()  # files that the last ROLL lists
        self.places: dict[int, tuple[int, int, int]] = {}  # segment, at, began_ms
        self.next_offsets: dict[int, int] = {}
        self.first_offsets: dict[int, int] = {}
        self.segments: dict[tuple[int, int], bytes] = {}
        self.gone: set[int] = set()  # log files that were removed


class Leader:
    """A model of the leader's log."""

    def __init__(self, rng: Random, *, defines: bool = True) -> None:
        self.rng = rng
        self.blocks: list[Block] = []
        self.states: list[_Model] = [_Model()]
        self.begin_term(0)
        if defines:  # otherwise a follower must guess the size of segments
            self._next()
            self._add(NORMAL_BLOCK, [_definition(stream) for stream in STREAMS])
        self.defines = defines

    @property
    def last(self) -> int:
        return len(self.blocks)

    def begin_term(self, after: int) -> None:
        """Cut the log after a block, and begin a new term there."""
        term = max([b.term for b in self.blocks], default=0) + 1
        del self.blocks[after:]
        del self.states[after + 1 :]
        state = self._next()
        state.term = term
        state.terms.append((term, self.last + 1))
        self._add(TERM_BLOCK, [encode_nothing()])

    def _next(self) -> _Model:
        self.states.append(copy.deepcopy(self.states[-1]))
        return self.states[-1]

    def _add(self, kind: int, records: list[bytes]) -> Block:
        block = Block(self.last + 1, self.states[-1].term, kind, records)
        self.blocks.append(block)
        return block

    def add(self) -> Block:
        """Append a block of a random kind."""
        kinds = ("messages", "messages", "chunk", "chunk", "trim", "roll", "members")
        return self.add_kind(self.rng.choice(kinds))

    def add_kind(self, kind: str) -> Block:
        state = self._next()
        if kind == "roll":
            return self._add(ROLL_BLOCK, self._roll(state))
        if kind == "members":
            state.members = b"m%d" % self.rng.randrange(100)
            return self._add(MEMBERS_BLOCK, [encode_members_record(state.members)])
        journal = Journal()
        if kind == "trim":
            self._trim(state, journal)
        if kind == "delete":
            self._delete(state, STREAMS[0])
            return self._add(NORMAL_BLOCK, [_deletion(STREAMS[0])])
        if kind == "chunk":
            for stream in self.rng.sample(STREAMS, self.rng.randint(1, 2)):
                self._chunk(state, journal, stream)
        for number in range(self.rng.randint(1, 3)):
            body = self.rng.randbytes(self.rng.choice((5, 60, 300)))
            journal.write_message(3, self.last * 10 + number, 0, 0, 0, 0, _ADDRESS, b"h", body)
        return self._add(NORMAL_BLOCK, journal.take_block())

    def add_big(self, size: int) -> Block:
        """Append a block of about this size."""
        self._next()
        journal = Journal()
        journal.write_message(3, self.last, 0, 0, 0, 0, _ADDRESS, b"h", self.rng.randbytes(size))
        return self._add(NORMAL_BLOCK, journal.take_block())

    def _chunk(self, state: _Model, journal: Journal, stream: int) -> None:
        writer = self._writer(state, stream)
        place = writer.position
        for _ in range(self.rng.randint(1, 3)):
            writer.add(_ADDRESS, bytes(20), self.rng.randbytes(self.rng.choice((9, 90))), 5000)
        journal.write_chunk(writer)
        written: list[WrittenChunk] = journal.take_written()
        chunk = written[0]
        key = (stream, int(chunk.segment))
        before = state.segments.get(key, encode_head(stream))
        assert len(before) == chunk.at
        state.segments[key] = before + chunk.data
        state.places[stream] = (int(place.segment), int(place.at), int(place.began_ms))
        state.next_offsets[stream] = int(writer.next_offset)

    def _trim(self, state: _Model, journal: Journal) -> None:
        for stream in STREAMS:
            firsts = sorted(first for number, first in state.segments if number == stream)
            if len(firsts) > 1:
                state.first_offsets[stream] = firsts[1]
                del state.segments[(stream, firsts[0])]
                journal.write_trim(stream, firsts[1])

    def _delete(self, state: _Model, stream: int) -> None:
        for key in [key for key in state.segments if key[0] == stream]:
            del state.segments[key]

    def _roll(self, state: _Model) -> list[bytes]:
        older = [file for file in state.firsts if file not in state.gone]
        dropped = {file for file in older if file < state.file and self.rng.random() < 0.4}
        state.gone |= dropped
        state.listed = set(older) - dropped
        state.file += 1
        state.firsts[state.file] = self.last + 1
        journal = Journal()
        journal.write_block_number(self.last)
        definitions = [_definition(stream) for stream in STREAMS] if self.defines else []
        for stream in STREAMS:
            if self.defines or stream in state.places:
                journal.write_stream(
                    self._writer(state, stream), state.first_offsets.get(stream, 0)
                )
        pairs = b"".join(f.to_bytes(8, "big") + bytes(8) for f in sorted(state.listed))
        files = bytes((FILES,)) + len(pairs).to_bytes(4, "big") + pairs
        roll = encode_roll(state.file, state.terms, state.members)
        return [roll, *definitions, *journal.take_block(), files]

    def _writer(self, state: _Model, stream: int) -> ChunkWriter:
        place = WritePosition(SEGMENT_BYTES, 0, HEAD_BYTES)
        if stream in state.places:
            place.resume_at(*state.places[stream])
        writer = ChunkWriter(place)
        writer.stream = stream
        writer.next_offset = state.next_offsets.get(stream, 0)
        return writer

    def log_files(self, last: int, committed: int) -> dict[str, bytes]:
        """Return the log files of a follower with blocks up to `last`."""
        gone = self.states[committed].gone
        state = self.states[last]
        found: dict[str, bytes] = {}
        for number, first in state.firsts.items():
            following = [f for f in state.firsts.values() if f > first]
            end = min(following, default=last + 1)
            if number not in gone and first < end:
                data = b"".join(block.data for block in self.blocks[first - 1 : end - 1])
                found[log_name(number)] = encode_head(number) + data
        return found

    def segment_files(self, committed: int) -> dict[str, bytes]:
        """Return the segments of a follower that knows how much is committed."""
        state = self.states[committed]
        return {segment_name(*key): data for key, data in state.segments.items()}

    def chunks(self, committed: int) -> dict[int, bytes]:
        """Return all chunks of each stream, whatever their segments."""
        found: dict[int, bytes] = {}
        for (stream, _), data in sorted(self.states[committed].segments.items()):
            found[stream] = found.get(stream, b"") + data[HEAD_BYTES:]
        return found

    def terms(self, last: int) -> list[tuple[int, int]]:
        return self.states[last].terms


def _definition(stream: int) -> bytes:
    arguments: Table = {
        "x-queue-type": Field(ord("S"), "stream"),
        "x-stream-max-segment-size-bytes": Field(ord("l"), SEGMENT_BYTES),
    }
    return _record(stream, "queue", {"arguments": Field(ord("F"), arguments)})


def _deletion(stream: int) -> bytes:
    return _record(stream, "queue-", {})


def _record(stream: int, op: str, more: Table) -> bytes:
    """Return the DEFINE record that declares or deletes a stream."""
    table: Table = {
        "op": Field(ord("S"), op),
        "vhost": Field(ord("S"), "/"),
        "name": Field(ord("S"), f"s{stream}"),
        "id": Field(ord("l"), stream),
        **more,
    }
    journal = Journal()
    journal.write_definition(encode_table(table))
    return b"".join(journal.take_block())


_ADDRESS = b"\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01q"
