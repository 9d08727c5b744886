"""Segment files read by the worker: ranges over several files, and all kinds of faults."""

from pathlib import Path

import pytest

from leveret.arrow.chunk_sources import ChunkPositions, chunks_from_files
from leveret.arrow.requests import RetentionPassedError, SegmentPart
from leveret.errors import CorruptionError
from leveret.storage.blocks import encode_head
from tests.unit.arrow.chunks import NUMBER, Sent, chunks


def segment(folder: Path, first: int, groups: int, body: bytes = b"x" * 100) -> SegmentPart:
    """Make a segment with ten messages in each chunk."""
    made = chunks(*[[Sent(body)] * 10] * groups, first_offset=first)
    path = folder / f"{first}.segment"
    path.write_bytes(encode_head(NUMBER) + b"".join(made))
    return SegmentPart(str(path), first, path.stat().st_size)


def offsets(
    parts: list[SegmentPart], first: int, end: int, indexes: ChunkPositions | None = None
) -> list[int]:
    """Return the first offsets of the chunks that a range is read from."""
    found = chunks_from_files(parts, NUMBER, first, end, indexes or ChunkPositions())
    return [int(chunk.first_offset) for chunk in found]


def test_range_over_several_segments(tmp_path: Path) -> None:
    parts = [segment(tmp_path, 0, 3), segment(tmp_path, 30, 2), segment(tmp_path, 50, 4)]
    assert offsets(parts, 0, 90) == list(range(0, 90, 10))
    assert offsets(parts, 25, 51) == [20, 30, 40, 50]
    assert offsets(parts[1:], 49, 50) == [40]
    assert offsets(parts, 5, 5) == []


def test_known_positions_of_a_segment_find_the_same_chunks(tmp_path: Path) -> None:
    parts = [segment(tmp_path, 0, 300, b"x" * 2000)]
    indexes = ChunkPositions()
    for first in (2999, 1500, 0, 1501, 2999, 10):
        assert offsets(parts, first, first + 1, indexes) == [first // 10 * 10]
    assert offsets(parts, 0, 3000, indexes) == list(range(0, 3000, 10))


def test_nothing_is_read_beyond_the_end_that_the_broker_allows(tmp_path: Path) -> None:
    whole = segment(tmp_path, 0, 2)
    half = (whole.end - 24) // 2 + 24
    part = SegmentPart(whole.path, 0, half)
    assert offsets([part], 0, 10) == [0]
    with pytest.raises(CorruptionError, match="offsets 10 to 19 are missing"):
        offsets([part], 0, 20)


def test_missing_file_counts_as_removed_by_retention(tmp_path: Path) -> None:
    parts = [segment(tmp_path, 0, 1), segment(tmp_path, 10, 1)]
    Path(parts[1].path).unlink()
    found = chunks_from_files(parts, NUMBER, 0, 20, ChunkPositions())
    assert next(found).first_offset == 0
    with pytest.raises(RetentionPassedError):
        next(found)


def test_file_that_is_removed_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    parts = [segment(tmp_path, 0, 50, b"x" * 100_000)]
    found = chunks_from_files(parts, NUMBER, 0, 500, ChunkPositions())
    next(found)
    Path(parts[0].path).unlink()
    assert len(list(found)) == 49


@pytest.mark.parametrize("at", [3, 30, 100, 1500, -1])
def test_damage_is_found(tmp_path: Path, at: int) -> None:
    part = segment(tmp_path, 0, 2)
    data = bytearray(Path(part.path).read_bytes())
    data[at] ^= 0x10
    Path(part.path).write_bytes(data)
    with pytest.raises(CorruptionError):
        offsets([part], 0, 20)


def test_file_that_is_too_short_is_damage(tmp_path: Path) -> None:
    part = segment(tmp_path, 0, 2)
    data = Path(part.path).read_bytes()
    for size in (0, 10, 24, 60, len(data) - 1):
        Path(part.path).write_bytes(data[:size])
        with pytest.raises(CorruptionError):
            offsets([part], 0, 20)


def test_segment_of_another_stream_is_damage(tmp_path: Path) -> None:
    part = segment(tmp_path, 0, 1)
    with pytest.raises(CorruptionError):
        next(chunks_from_files([part], NUMBER + 1, 0, 10, ChunkPositions()))
