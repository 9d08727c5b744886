"""A disk is slow after some looks with long syncs, and this is logged once, as is its end."""

import logging
import time

import pytest

from leveret.histogram import Histogram
from leveret.runtime.sync_watch import (
    FAST_SYNC_S,
    FORGET_S,
    LOOK_S,
    LOOKS,
    SLOW_SYNC_S,
    SyncWatch,
)
from leveret.storage.write_job import SYNC_BOUNDS_S


class Disk:
    """The figures of a log, set by the test."""

    def __init__(self) -> None:
        self.sync_times = Histogram(SYNC_BOUNDS_S)
        self.running_s = 0.0
        self.log: Disk | None = self
        self.watch = SyncWatch("/data", lambda: self.log)

    def sync_began_s(self) -> float:
        return time.perf_counter() - self.running_s if self.running_s else 0.0

    def look(self, *syncs_s: float) -> float:
        """Look after these syncs; return the time of a sync, if the disk is slow."""
        for sync_s in syncs_s:
            self.sync_times.observe(sync_s)
        self.watch.look()
        return self.watch.slow_sync_s


def slow_disk() -> Disk:
    disk = Disk()
    for _ in range(LOOKS):
        disk.look(0.4, 0.2)
    assert disk.watch.slow_sync_s == pytest.approx(0.3)
    return disk


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines since the last call."""
    found = [record.message for record in caplog.records]
    caplog.clear()
    return found


def test_beginning_and_end_of_a_slow_disk_are_one_line_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = slow_disk()
    assert caplog.records[0].__dict__["facts"] == {"data": "/data", "sync_ms": 300}
    (line,) = lines(caplog)
    assert line.startswith("the disk is slow: confirms wait for its syncs: look for")
    for _ in range(10):
        assert disk.look(0.4) == pytest.approx(0.4)
    assert lines(caplog) == []
    for _ in range(LOOKS - 1):
        assert disk.look(0.002) == pytest.approx(0.4), "a slow disk is not told with a short sync"
    assert disk.look(0.002) == 0
    assert disk.look(0.002) == 0
    assert lines(caplog) == ["the disk is not slow any more"]


def test_one_slow_look_between_fast_ones_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    for _ in range(3):
        for _ in range(LOOKS - 1):
            assert disk.look(2.0) == 0
        assert disk.look(0.001) == 0
    assert lines(caplog) == []


def test_disk_between_both_limits_stays_as_it_is() -> None:
    between_s = (SLOW_SYNC_S + FAST_SYNC_S) / 2
    disk = Disk()
    for _ in range(2 * LOOKS):
        assert disk.look(between_s) == 0
    slow = slow_disk()
    for _ in range(2 * LOOKS):
        assert slow.look(between_s) == pytest.approx(between_s)


def test_looks_without_a_sync_are_left_out() -> None:
    disk = Disk()
    for _ in range(LOOKS):
        assert disk.look() == 0
        disk.look(SLOW_SYNC_S)
    assert disk.look() == SLOW_SYNC_S


def test_slow_disk_that_syncs_no_more_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    disk = slow_disk()
    lines(caplog)
    for _ in range(int(FORGET_S / LOOK_S) - 1):
        assert disk.look() > 0
    assert disk.look() == 0
    assert disk.look() == 0
    (line,) = lines(caplog)
    assert "has synced nothing for 60 s" in line


def test_sync_that_does_not_end_counts_with_its_time_so_far() -> None:
    disk = Disk()
    disk.running_s = 20.0
    for _ in range(LOOKS):
        disk.look()
    assert disk.watch.slow_sync_s == pytest.approx(20.0, abs=5.0)
    short = Disk()
    short.running_s = SLOW_SYNC_S / 100
    for _ in range(2 * LOOKS):
        assert short.look() == 0


def test_another_log_of_the_same_disk_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    disk = slow_disk()
    lines(caplog)
    disk.log = None  # the node changes its role
    assert disk.look() > 0
    disk.log = Disk()
    disk.log.sync_times.observe(0.5)
    assert disk.look() == 0.5
    assert lines(caplog) == []
