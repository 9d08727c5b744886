"""The local log: jobs survive a crash, torn ends are cut off, jobs are taken back."""

import asyncio
import errno
import os
import resource
import shutil
import signal
import threading
from pathlib import Path

import pytest

from leveret.checksum import crc32
from leveret.errors import CorruptionError, JobsUnavailableError, NewerFormatError, StorageError
from leveret.job_service.shards.buffered_job import BufferedJob, encode_job
from leveret.job_service.shards.wal import Wal

SEGMENT_BYTES = 4_096


def entry(id: int, payload: bytes = b"x" * 100) -> BufferedJob:
    return BufferedJob(id, "n", "t", 0, 1, 2, None, None, payload)


def opened(folder: Path, sync: str = "never") -> Wal:
    wal = Wal(folder, sync, SEGMENT_BYTES)
    wal.open()
    return wal


def append(wal: Wal, jobs: list[BufferedJob]) -> None:
    wal.append(jobs, [encode_job(job) for job in jobs], 0.0)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.wal"))


def test_what_was_appended_is_there_after_a_restart(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    batch = [entry(1, b"one"), entry(2, b""), entry(3, b"3" * 5000)]
    append(wal, batch)
    wal.close()
    again = opened(tmp_path)
    assert again.origin == wal.origin
    assert again.read([1, 2, 3]) == batch
    again.close()


def test_a_torn_end_is_cut_off_at_every_byte_and_a_batch_is_whole_or_gone(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    append(wal, [entry(1)])
    (path,) = segments(tmp_path)
    whole = path.stat().st_size
    append(wal, [entry(2), entry(3)])
    wal.close()
    data = path.read_bytes()
    for length in range(whole, len(data)):
        path.write_bytes(data[:length])
        again = opened(tmp_path)
        assert list(again.outstanding) == [1]
        again.close()
        assert segments(tmp_path) == [path]
    path.write_bytes(data)
    again = opened(tmp_path)
    assert list(again.outstanding) == [1, 2, 3]
    again.close()


def test_a_flipped_bit_in_the_last_record_cuts_it_off(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    append(wal, [entry(1)])
    (path,) = segments(tmp_path)
    whole = path.stat().st_size
    append(wal, [entry(2)])
    wal.close()
    data = bytearray(path.read_bytes())
    for offset in range(whole + 13, len(data), 7):  # beyond the head and the state
        flipped = bytearray(data)
        flipped[offset] ^= 0x10
        path.write_bytes(flipped)
        again = opened(tmp_path)
        assert list(again.outstanding) == [1]
        again.close()


def inodes(paths: list[Path]) -> list[int]:
    return [path.stat().st_ino for path in paths]


def filled(folder: Path, *, is_synced: bool) -> None:
    """Fill several files; end as if the node had been killed."""

    async def main() -> None:
        wal = opened(folder, "always")
        for id in range(1, 100):
            append(wal, [entry(id)])
        if is_synced:
            await wal.synced()
        wal.close()

    asyncio.run(main())
    assert len(segments(folder)) > 2


def damage(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_damage_before_the_last_file_is_told(tmp_path: Path) -> None:
    filled(tmp_path, is_synced=True)
    damage(segments(tmp_path)[0], 60)
    with pytest.raises(CorruptionError, match="damaged"):
        opened(tmp_path)


def test_torn_ends_of_files_that_were_never_synced_are_cut_off(tmp_path: Path) -> None:
    """The machine stopped before the sync of the first file had ended; the next one was begun."""
    filled(tmp_path, is_synced=False)
    first = segments(tmp_path)[0]
    damage(first, first.stat().st_size - 10)
    wal = opened(tmp_path)
    lost = set(range(1, 100)) - set(wal.outstanding)
    assert len(lost) == 1
    wal.close()


def test_a_file_that_a_later_run_has_synced_must_be_whole(tmp_path: Path) -> None:
    filled(tmp_path, is_synced=False)

    async def main() -> None:
        wal = opened(tmp_path, "always")
        await wal.synced()
        wal.close()

    asyncio.run(main())
    damage(segments(tmp_path)[0], 60)
    with pytest.raises(CorruptionError, match="damaged"):
        opened(tmp_path)


def test_a_file_of_version_1_must_be_whole_unless_it_is_the_last(tmp_path: Path) -> None:
    filled(tmp_path, is_synced=False)
    for path in segments(tmp_path):
        data = bytearray(path.read_bytes())
        data[4:8] = (1).to_bytes(4, "big")
        data[24:28] = crc32(bytes(data[:24])).to_bytes(4, "big")
        del data[28]
        path.write_bytes(data)
    wal = opened(tmp_path)
    assert list(wal.outstanding) == list(range(1, 100))
    assert wal.read([50]) == [entry(50)]
    wal.close()
    damage(segments(tmp_path)[0], 60)
    with pytest.raises(CorruptionError, match="damaged"):
        opened(tmp_path)


def test_a_job_that_was_taken_back_is_not_replayed(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    append(wal, [entry(1), entry(2), entry(3)])
    wal.undo([2])
    wal.close()
    again = opened(tmp_path)
    assert list(again.outstanding) == [1, 3]
    assert list(again.undone) == [2]
    again.close()


def test_files_go_when_all_their_jobs_are_settled(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    for id in range(1, 200):
        append(wal, [entry(id)])
    assert len(segments(tmp_path)) > 3
    wal.settle([id for id in range(1, 200) if id != 1])
    assert len(segments(tmp_path)) == 2  # that of job 1, and the one that is written
    wal.settle([1])
    assert len(segments(tmp_path)) == 1
    wal.close()
    assert not segments(tmp_path)


def test_a_second_process_cannot_use_the_directory(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    with pytest.raises(StorageError, match="another process"):
        opened(tmp_path)
    wal.close()
    opened(tmp_path).close()


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    append(wal, [entry(1)])
    wal.close()
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[4:8] = (3).to_bytes(4, "big")
    data[24:28] = crc32(bytes(data[:24])).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(NewerFormatError):
        opened(tmp_path)


def test_a_full_disk_refuses_the_batch_and_keeps_the_rest(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the record is written half."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            wal = Wal(tmp_path, "never", 1 << 30)
            wal.open()
            append(wal, [entry(1)])
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
            with pytest.raises(JobsUnavailableError, match="cannot be written"):
                append(wal, [entry(2, b"y" * 5_000)])
            append(wal, [entry(3)])
            wal.undo([1])
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    again = opened(tmp_path)
    assert list(again.outstanding) == [3]
    assert list(again.undone) == [1]
    again.close()


@pytest.mark.parametrize("written", [None, 5])
def test_a_disk_that_is_full_at_the_begin_of_a_file_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    """The name of the file is there already when there is no room for its first bytes."""

    def write(descriptor: int, data: bytes) -> int:
        if written is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:written])

    real = os.write
    wal = opened(tmp_path)
    append(wal, [entry(1)])
    with monkeypatch.context() as patches:
        patches.setattr(os, "write", write)
        for _ in range(2):
            with pytest.raises(JobsUnavailableError, match="No space left on device"):
                append(wal, [entry(2, bytes(SEGMENT_BYTES))])
    append(wal, [entry(3, bytes(SEGMENT_BYTES))])
    assert len(segments(tmp_path)) == 2
    wal.close()
    again = opened(tmp_path)
    assert list(again.outstanding) == [1, 3]
    again.close()


class HeldSyncs:
    """Syncs that take until they are let go, and then fail if `fault` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault: OSError | None = None
        self._may_end = threading.Event()
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, descriptor: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self._may_end.wait()
        if self.fault is not None:
            raise self.fault
        self._real(descriptor)

    def let_go(self) -> None:
        self._may_end.set()


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_a_disk_that_does_not_answer_syncs_stops_no_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    async def main() -> None:
        wal = opened(tmp_path, sync)
        syncs = HeldSyncs(monkeypatch)
        append(wal, [entry(1)])
        waiting = asyncio.get_running_loop().create_task(wal.synced())
        await asyncio.sleep(0)  # it begins
        for id in range(2, 200):
            append(wal, [entry(id)])
        assert len(segments(tmp_path)) > 3
        assert waiting.done() == (sync != "always")
        syncs.let_go()
        await waiting
        await wal.synced()
        wal.close()

    asyncio.run(main())
    monkeypatch.undo()
    again = opened(tmp_path)
    assert list(again.outstanding) == list(range(1, 200))
    again.close()


def test_a_sync_covers_all_files_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one in which only a job was taken back."""
    synced: set[int] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    async def main() -> None:
        wal = opened(tmp_path, "always")
        monkeypatch.setattr(os, "fsync", fsync)
        for id in range(1, 100):
            append(wal, [entry(id)])
        await wal.synced()
        files = inodes(segments(tmp_path))
        assert synced == {*files, *inodes([tmp_path])}
        synced.clear()
        wal.undo([1])
        await wal.synced()
        assert synced == {files[0]}
        wal.close()

    asyncio.run(main())


def test_a_failed_sync_breaks_the_log_even_if_its_caller_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        wal = opened(tmp_path, "always")
        syncs = HeldSyncs(monkeypatch)
        append(wal, [entry(1)])
        leaving = asyncio.get_running_loop().create_task(wal.synced())
        await asyncio.sleep(0)
        waiting = asyncio.get_running_loop().create_task(wal.synced())
        await asyncio.sleep(0)
        leaving.cancel()
        syncs.fault = OSError("the disk is gone")
        syncs.let_go()
        with pytest.raises(JobsUnavailableError, match="the disk is gone"):
            await waiting
        wal.close()

    asyncio.run(main())


def test_always_syncs_before_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)

    async def main() -> None:
        wal = opened(tmp_path, "always")
        synced.clear()
        append(wal, [entry(1)])
        assert not synced
        await asyncio.gather(wal.synced(), wal.synced())
        assert len(synced) == 1  # one for both
        wal.close()

    asyncio.run(main())


def test_refusal_of_a_job_does_not_name_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    wal = opened(folder)
    append(wal, [entry(1)])
    shutil.rmtree(folder)
    with pytest.raises(JobsUnavailableError, match="No such file or directory") as caught:
        append(wal, [entry(2, bytes(SEGMENT_BYTES))])
    assert str(folder) not in str(caught.value)
    wal.close()


def test_a_failed_sync_breaks_the_log_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError("the disk is gone")

    async def main() -> None:
        wal = opened(tmp_path, "always")
        append(wal, [entry(1)])
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(JobsUnavailableError, match="the disk is gone"):
            await wal.synced()
        monkeypatch.undo()
        with pytest.raises(JobsUnavailableError, match="broken"):
            append(wal, [entry(2)])
        wal.close()

    asyncio.run(main())
