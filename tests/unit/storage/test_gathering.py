"""How the log gathers what clients send into one block."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from leveret.journal.journal import Journal
from leveret.storage.disk_space import DiskReserve
from leveret.storage.log import GATHER_S, WAIT_BYTES_MAX, Log
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.writer_thread import Job
from leveret.testing.disk import FakeDisk


class Passes:
    """An event loop whose passes a test runs one by one."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._next: deque[Callable[[], None]] = deque()

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._next.append(lambda: callback(*arguments))

    call_soon_threadsafe = call_soon

    def run_pass(self) -> None:
        for _ in range(len(self._next)):
            self._next.popleft()()


class AtOnce:
    """A thread of the log that does each job when it is given."""

    def __init__(self, do: Callable[[Any], None]) -> None:
        self.submit = do

    def start(self) -> None:
        """There is no thread."""

    def finish(self) -> None:
        """Nothing is left to do."""


class DiskAtOnce(FakeDisk):
    def make_thread(self, name: str, do: Callable[[Job], None]) -> AtOnce:
        return AtOnce(do)


class Writing:
    """A started log with its journal."""

    def __init__(self) -> None:
        disk = DiskAtOnce()
        disk.prepare()
        self.loop = Passes()
        self.journal = Journal()
        self.log = Log(
            disk,
            SegmentFiles(disk),
            self.journal,
            cast(asyncio.AbstractEventLoop, self.loop),
            DiskReserve(disk, 0),
        )
        self.log.start({}, 0, 1, 0)

    def publish(self, size: int = 1) -> None:
        """Write a message that its client waits for, as a turn does."""
        self.journal.write_message(1, 1, 0, 0, 0, 0, b"", b"", b"m" * size)
        self.journal.must_sync = True
        self.log.start_writing()

    def pass_and_count(self) -> int:
        """Run a pass of the event loop; return how many blocks were taken so far."""
        self.loop.run_pass()
        return self.log.taken_block


@pytest.fixture
def writing() -> Iterator[Writing]:
    made = Writing()
    yield made
    made.log.stop()


def test_block_is_written_after_a_pass_that_added_nothing(writing: Writing) -> None:
    writing.publish()
    assert writing.pass_and_count() == 0  # the pass in which the message came
    assert writing.pass_and_count() == 1


def test_messages_of_further_passes_go_to_the_same_block(writing: Writing) -> None:
    for _ in range(5):
        writing.publish()
        assert writing.pass_and_count() == 0
    assert writing.pass_and_count() == 1
    assert writing.journal.waiting_bytes() == 0


def test_block_that_keeps_growing_is_written_when_its_time_is_over(writing: Writing) -> None:
    writing.publish()
    assert writing.pass_and_count() == 0
    writing.publish()
    writing.loop.now_s += GATHER_S
    assert writing.pass_and_count() == 1


def test_long_block_is_written_at_once(writing: Writing) -> None:
    writing.publish(WAIT_BYTES_MAX)
    assert writing.pass_and_count() == 1


def test_log_that_was_stopped_while_it_gathered_takes_no_further_block(writing: Writing) -> None:
    writing.publish()
    assert writing.pass_and_count() == 0
    writing.log.stop()  # it writes the block itself
    assert writing.pass_and_count() == 0
