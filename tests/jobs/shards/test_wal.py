"""The local log: jobs survive a crash, torn ends are cut off, jobs are taken back."""

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

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


def test_damage_before_the_last_file_is_told(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    for id in range(1, 100):
        append(wal, [entry(id)])
    wal.close()
    first, *others = segments(tmp_path)
    assert others
    data = bytearray(first.read_bytes())
    data[60] ^= 1
    first.write_bytes(data)
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
    from leveret.checksum import crc32

    wal = opened(tmp_path)
    append(wal, [entry(1)])
    wal.close()
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[4:8] = (2).to_bytes(4, "big")
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
