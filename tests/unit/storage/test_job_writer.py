"""The jobs of the log's thread, when a bug stops one of them."""

import errno
import time
from collections.abc import Callable

import pytest

from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.disk_space import DiskReserve
from leveret.storage.job_writer import JobWriter
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.write_job import WriteJob
from leveret.testing.disk import FakeDisk


def test_bug_in_a_job_is_reported_and_logged_with_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FakeDisk()
    faults: list[OSError] = []
    writer = JobWriter(
        disk,
        SegmentFiles(disk),
        DiskReserve(disk, 0),
        lambda job: None,
        lambda job, fault: faults.append(fault),
    )
    writer.do(WriteJob([b"block"], 1, 0, 1))  # no file was begun: an assertion fails
    assert [fault.errno for fault in faults] == [errno.EIO]
    assert "AssertionError" in str(faults[0])
    assert faults[0].strerror == "AssertionError, a bug of the broker"  # clients read it
    assert "Traceback" in caplog.text


def test_jobs_after_a_failed_one_are_not_done() -> None:
    disk = FakeDisk()
    done: list[WriteJob] = []
    writer = JobWriter(
        disk, SegmentFiles(disk), DiskReserve(disk, 0), done.append, lambda job, fault: None
    )
    writer.do(WriteJob([b"block"], 1, 0, 1))
    writer.do(WriteJob([], 2, 0, 1))
    assert done == []


class NotedDisk(FakeDisk):
    """A disk that calls `on_sync` during the sync of a file."""

    on_sync: Callable[[], object] = bool

    def sync_file(self, number: int) -> None:
        self.on_sync()
        super().sync_file(number)


@pytest.mark.parametrize("fails", [False, True])
def test_beginning_of_a_sync_is_known_while_it_runs(fails: bool) -> None:
    disk = NotedDisk()
    reported: list[WriteJob] = []
    writer = JobWriter(
        disk,
        SegmentFiles(disk),
        DiskReserve(disk, 0),
        reported.append,
        lambda job, fault: reported.append(job),
    )
    first = WriteJob([], 0, 0, 1)
    first.next_file = 1
    writer.do(first)
    seen: list[float] = []
    disk.on_sync = lambda: seen.append(writer.sync_began_s)
    if fails:
        disk.fail_sync()
    before_s = time.perf_counter()
    writer.do(WriteJob([b"block"], 1, HEAD_BYTES, 1))
    assert before_s <= seen[0] <= time.perf_counter()
    assert len(reported) == 2
    assert writer.sync_began_s == 0
