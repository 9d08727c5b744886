"""A stage that leads a cluster: its blocks are committed when the test says so.

`Followers` takes the place of the other nodes. It keeps every block that the log gave away, and
knows which of them are on the leader's own disk. `ReplicatedStage.commit` commits blocks. A client
that waits for an answer (`take_report`) lets blocks be written and committed one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

from leveret.journal.cluster_records import is_roll_block
from leveret.journal.records import STAMP_BYTES
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, block_end
from leveret.storage.file_names import SYNCED, index_name, log_name, numbers
from leveret.storage.replication import Replication
from leveret.storage.writer_thread import JobThread
from leveret.testing.disk import FakeDisk
from tests.protocol.stage import START_MS
from tests.simulation.storage_stage import StorageStage

Job = TypeVar("Job")

MEMBERS: Final = b"a=1,b=2,c=3"


class InlineThread(Generic[Job]):
    """Does each job at once. Its report waits until the stage takes it."""

    def __init__(self, do: Callable[[Job], None]) -> None:
        self._do = do

    def start(self) -> None:
        """Do nothing."""

    def submit(self, job: Job) -> None:
        self._do(job)

    def finish(self) -> None:
        """Do nothing: every job is done."""


class InlineDisk(FakeDisk):
    """A disk without a thread, so that several jobs of the log are done in the same order."""

    def make_thread(self, name: str, do: Callable[[Job], None]) -> JobThread[Job]:
        return InlineThread(do)


class Given(NamedTuple):
    """A block that the log gave to the other nodes."""

    number: int
    term: int
    kind: int
    data: bytes


class Followers:
    """The other nodes of the cluster, and the leader's knowledge of them."""

    def __init__(self, term: int = 1, *, bytes_max: int = 1 << 20) -> None:
        self.term = term
        self.bytes_max = bytes_max
        self.given: list[Given] = []
        self.synced = 0  # last block on the leader's disk
        self.committed = 0
        self.is_closed = False  # no block may be appended
        self.has_lease = True
        self.replication = Replication(
            term,
            append=self._append,
            on_synced=self._on_synced,
            is_full=self._is_full,
            has_lease=lambda: self.has_lease,
            terms=lambda: [(term, 1)],
            members=lambda: MEMBERS,
        )

    def _append(self, number: int, term: int, kind: int, data: bytes) -> None:
        assert not self.is_closed
        assert not self.given or number == self.given[-1].number + 1
        assert block_end(data, 0, number) == len(data)
        assert is_roll_block(data, BLOCK_HEAD_BYTES, len(data)) == (kind == 3)
        assert data[BLOCK_HEAD_BYTES + STAMP_BYTES - 1] == kind
        self.given.append(Given(number, term, kind, data))

    def _on_synced(self, number: int) -> None:
        assert number in (self.synced + 1, self.given[0].number)
        self.synced = number

    def _is_full(self) -> bool:
        waiting = [len(block.data) for block in self.given if block.number > self.committed]
        return self.is_closed or sum(waiting) >= self.bytes_max

    def ready(self) -> list[int]:
        """Return the blocks that may be committed."""
        return list(range(max(self.committed + 1, self.given[0].number), self.synced + 1))


class ReplicatedStage(StorageStage):
    """The broker of a leader on one disk."""

    def __init__(
        self,
        disk: FakeDisk,
        *,
        term: int = 1,
        file_bytes: int = 1 << 20,
        now_ms: int = START_MS,
        holds: bool = False,
        bytes_max: int = 1 << 20,
        is_begun: bool = True,
    ) -> None:
        self.followers = Followers(term, bytes_max=bytes_max)
        self.commits: list[tuple[int, int]] = []  # moment of the disk, committed block
        self.is_committing = True  # clients that wait let blocks be committed
        self.is_eager = False  # every turn waits until its blocks are committed
        super().__init__(
            disk,
            file_bytes=file_bytes,
            now_ms=now_ms,
            holds=holds,
            replication=self.followers.replication,
        )
        if is_begun:
            self.commit_all()

    def end_turn(self) -> None:
        super().end_turn()
        if self.is_eager:
            self.is_eager = False
            self.commit_all()
            self.is_eager = True

    def commit(self, number: int) -> None:
        """Commit blocks that are on the leader's disk."""
        assert number <= self.followers.synced
        self.followers.committed = number
        self.commits.append((self.disk.moment, number))
        log = self.store.replicated
        assert log is not None
        log.commit_to(number)
        self._await_report()
        if not self.holds:
            self.sync()

    def commit_some(self, rng: Random) -> None:
        ready = self.followers.ready()
        if ready:
            self.commit(rng.choice(ready))

    def take_report(self) -> bool:
        """Process a report of the log's thread, or commit a block; return False if neither."""
        if super().take_report():
            return True
        if self.is_committing and self.followers.ready():
            self.commit(self.followers.ready()[0])
            return True
        return False

    def sync(self) -> None:
        """Run until no block is being written. Nothing is committed."""
        while super().take_report():
            pass

    def commit_all(self) -> None:
        """Run until everything is written and committed."""
        while self.take_report():
            pass

    def committed_at(self, moment: int) -> int:
        """Return the last block that was committed at a moment of the disk."""
        return max((block for when, block in self.commits if when <= moment), default=0)


def blocks_of(disk: FakeDisk) -> list[tuple[str, int, int, int]]:
    """Return file, start, end and number of each whole block, from the start of the log on."""
    found: list[tuple[str, int, int, int]] = []
    for number in numbers(disk.names(), ".log"):
        name = log_name(number)
        data = disk.content(name)
        at = HEAD_BYTES
        while at < len(data):
            block = int.from_bytes(data[at + 8 : at + BLOCK_HEAD_BYTES], "big")
            end = block_end(data, at, block)
            if end == 0:
                break
            found.append((name, at, end, block))
            at = end
    return found


def cut(disk: FakeDisk, last: int) -> None:
    """Cut off all blocks after a number, as a follower does when another node leads."""
    kept = {name: end for name, _, end, block in blocks_of(disk) if block <= last}
    for number in numbers(disk.names(), ".log"):
        name = log_name(number)
        if name not in kept:
            disk.remove(name)
        elif kept[name] < len(disk.content(name)):
            disk.put(name, disk.content(name)[: kept[name]])
            if index_name(number) in disk.names():
                disk.remove(index_name(number))
    if SYNCED in disk.names():
        disk.remove(SYNCED)
