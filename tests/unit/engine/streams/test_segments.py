"""Segments: the positions of chunks, and how they are found by offset and by time."""

from random import Random

import pytest

from leveret.engine.streams.segments import FAR_MS, MemorySegments, SegmentIndex
from leveret.errors import CorruptionError
from leveret.journal.chunks import WritePosition, WrittenChunk
from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.segments import DiskSegments
from tests.unit.engine.streams.chunks import writer, written


def chunks_of(rng: Random, count: int, head_bytes: int = 0) -> list[WrittenChunk]:
    """Return chunks of a stream with small segments. Some have the same time."""
    made = writer(rng.choice((1, 300, 2000)), rng.choice((0, 50)), head_bytes)
    now_ms = 1000
    found: list[WrittenChunk] = []
    for _ in range(count):
        now_ms += rng.choice((0, 0, 1, 7, 30))
        bodies = [b"x" * rng.randrange(60) for _ in range(rng.randrange(1, 6))]
        found.append(written(made, bodies, now_ms))
    return found


def place_of(
    chunks: list[WrittenChunk], segment_bytes: int, segment_ms: int
) -> list[tuple[int, int]]:
    place = WritePosition(segment_bytes, segment_ms, 24)
    found: list[tuple[int, int]] = []
    for chunk in chunks:
        at = int(place.place_chunk(chunk.first_offset, chunk.first_ms, len(chunk.data)))
        found.append((int(place.segment), at))
    return found


@pytest.mark.parametrize("segment_bytes", [0, 1, 500, 1 << 20])
@pytest.mark.parametrize("segment_ms", [0, 20])
def test_places_depend_on_the_chunks_alone(seed: int, segment_bytes: int, segment_ms: int) -> None:
    print(f"seed {seed}")
    chunks = chunks_of(Random(seed), 100)
    places = place_of(chunks, segment_bytes, segment_ms)
    assert places == place_of(chunks, segment_bytes, segment_ms)
    assert len(set(places)) == len(places)
    for stop in (1, 30, 99):  # a writer that continues from a place gets the same places
        place = WritePosition(segment_bytes, segment_ms, 24)
        for chunk in chunks[:stop]:
            place.place_chunk(chunk.first_offset, chunk.first_ms, len(chunk.data))
        other = WritePosition(segment_bytes, segment_ms, 24)
        other.resume_at(place.segment, place.at, place.began_ms)
        for chunk, (segment, at) in zip(chunks[stop:], places[stop:], strict=True):
            assert other.place_chunk(chunk.first_offset, chunk.first_ms, len(chunk.data)) == at
            assert other.segment == segment


def test_segment_is_closed_by_size_and_by_age() -> None:
    place = WritePosition(100, 1000, 10)
    chunks = ((0, 5, 60), (1, 6, 30), (2, 7, 1))
    assert [int(place.place_chunk(*chunk)) for chunk in chunks] == [10, 70, 10]
    assert place.segment == 2
    assert place.place_chunk(3, 1006, 1) == 11
    assert place.place_chunk(4, 1007, 1) == 10
    assert place.segment == 4
    assert place.place_chunk(5, 1008, 500) == 10  # larger than a segment: alone in one
    assert place.segment == 5


def test_chunks_are_found_by_offset_and_by_time(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(20):
        segments = MemorySegments()
        chunks = chunks_of(rng, rng.randrange(1, 60))
        for chunk in chunks:
            segments.add(chunk)
        end = int(chunks[-1].first_offset + chunks[-1].count)
        offsets: list[tuple[int, int]] = []
        for chunk in chunks:
            first = int(chunk.first_offset)
            offsets += [(first + n, int(chunk.first_ms)) for n in range(chunk.count)]
        for offset, _ in offsets:
            assert segments.find(offset).first_offset <= offset < segments.find(offset).end_offset
        for time_ms in range(990, int(chunks[-1].first_ms) + 10, 3):
            not_older = [offset for offset, at in offsets if at >= time_ms]
            assert segments.find_time(time_ms, end) == (not_older[0] if not_older else end)
        following = segments.find(0)
        for chunk in chunks[1:]:
            following = segments.next(following)
            assert following.first_offset == chunk.first_offset
        with pytest.raises(CorruptionError):
            segments.next(following)


def test_nothing_is_found_in_empty_segments() -> None:
    segments = MemorySegments()
    assert segments.find_time(5, 17) == 17
    assert segments.skip_damage(3, 17) == 17
    assert segments.first_ms(0) == FAR_MS
    with pytest.raises(CorruptionError):
        segments.find(0)


def test_index_keeps_one_chunk_for_each_stride() -> None:
    index = SegmentIndex()
    for number in range(100):
        index.note(number * 10, number * 5, number * 10_000)
    assert 10 <= len(index.places) <= 16
    assert index.by_offset(0) == 0
    assert index.by_time(0) == 0
    for offset in range(1000):
        at = int(index.by_offset(offset))
        assert at // 1000 <= offset < at // 1000 + 80


class Files:
    """The segments of one stream as bytes, which a test may damage."""

    def __init__(self, chunks: list[WrittenChunk]) -> None:
        self.data: dict[int, bytearray] = {}
        self.reads = 0
        self.most = 0  # bytes that were asked for at once
        for chunk in chunks:
            file = self.data.setdefault(int(chunk.segment), bytearray(HEAD_BYTES))
            assert len(file) == chunk.at
            file += chunk.data

    def read(self, stream: int, segment: int, at: int, size: int) -> bytes:
        self.reads += 1
        self.most = max(self.most, size)
        assert stream == 9
        if segment not in self.data:
            raise CorruptionError("missing")
        return bytes(self.data[segment][at : at + size])


def on_disk(chunks: list[WrittenChunk]) -> tuple[Files, DiskSegments]:
    files = Files(chunks)
    segments = DiskSegments(9, files.read)
    for chunk in chunks:
        segments.add(chunk)
    return files, segments


def test_segments_on_disk_find_what_those_in_memory_find(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(10):
        chunks = chunks_of(rng, 40, HEAD_BYTES)
        _, known = on_disk(chunks)
        _, opened = on_disk(chunks)
        fresh = DiskSegments(9, Files(chunks).read)  # as after a start: indexes are read
        fresh.segments = opened.segments
        for segment in fresh.segments:
            segment.first_ms = -1
        end = int(chunks[-1].first_offset + chunks[-1].count)
        for offset in range(end):
            assert fresh.find(offset).first_offset == known.find(offset).first_offset
        for time_ms in range(990, int(chunks[-1].first_ms) + 10):
            assert fresh.find_time(time_ms, end) == known.find_time(time_ms, end)


def test_time_of_a_segment_that_cannot_be_read_is_that_of_the_next() -> None:
    made = writer(1, 0, HEAD_BYTES)
    chunks = [written(made, [b"a", b"b"], 100 * number) for number in range(1, 5)]
    files, segments = on_disk(chunks)
    for segment in segments.segments:
        segment.first_ms = -1
    files.data[2][HEAD_BYTES + 17] ^= 0xFF  # of the time of the second segment
    del files.data[6]
    assert [int(segments.first_ms(number)) for number in range(4)] == [100, 300, 300, FAR_MS]
    with pytest.raises(CorruptionError):  # the stream begins at its first message then
        segments.find_time(150, 8)


def test_head_with_another_time_does_not_hide_messages() -> None:
    """A damaged time must not make a reader begin too late without a warning."""
    made = writer(1 << 30, 0, HEAD_BYTES)
    chunks = [written(made, [b"x" * 70_000], 100 * number) for number in range(1, 9)]
    for bit in range(64):
        files, segments = on_disk(chunks)
        fresh = DiskSegments(9, files.read)
        fresh.segments = segments.segments
        at = int(chunks[4].at) + 16
        files.data[0][at + bit // 8] ^= 1 << bit % 8
        for time_ms in range(50, 900, 50):
            right = max(0, (time_ms + 99) // 100 - 1)
            try:
                assert fresh.find_time(time_ms, 8) <= right
            except CorruptionError:
                continue


def test_damage_is_skipped_up_to_the_next_place_that_is_known() -> None:
    made = writer(200_000, 0, HEAD_BYTES)
    chunks = [written(made, [b"x" * 60_000], number) for number in range(8)]
    files, segments = on_disk(chunks)
    second = int(segments.segments[1].first_offset)
    assert segments.skip_damage(second, 8) == second + 2  # one chunk does not fill a stride
    del files.data[second]
    bare = DiskSegments(9, files.read)
    bare.segments = segments.segments
    assert bare.skip_damage(second, 8) == segments.segments[2].first_offset
    last = int(segments.segments[-1].first_offset)
    assert bare.skip_damage(7, 8) == 8
    assert last < 8


def test_small_chunks_are_read_together() -> None:
    made = writer(1 << 30, 0, HEAD_BYTES)
    chunks = [written(made, [b"x" * 60], number) for number in range(2000)]
    files, segments = on_disk(chunks)
    chunk = segments.find(0)
    for _ in range(1999):
        chunk = segments.next(chunk)
    assert chunk.end_offset == 2000
    assert files.reads < 10


def test_what_is_written_while_somebody_reads_is_read_when_it_is_whole() -> None:
    made = writer(1 << 30, 0, HEAD_BYTES)
    chunks = [written(made, [b"a" * 60]), written(made, [b"b" * 60])]
    files, segments = on_disk(chunks[:1])
    files.data[0] += b"\x00" * len(chunks[1].data)  # on its way
    assert segments.find(0).body(0) == b"a" * 60
    files.data[0][int(chunks[1].at) :] = chunks[1].data
    segments.add(chunks[1])
    assert segments.next(segments.find(0)).body(0) == b"b" * 60
    assert segments.find(1).body(0) == b"b" * 60


def test_a_damaged_size_is_not_trusted() -> None:
    """A damaged size must not cause a read of gigabytes."""
    files, segments = on_disk([written(writer(1 << 30, 0, HEAD_BYTES), [b"a" * 60])])
    files.data[0][HEAD_BYTES + 3] = 0xFF
    before = files.most
    with pytest.raises(CorruptionError):
        segments.find(0)
    assert files.most <= max(before, 1 << 16)


def test_indexes_of_many_segments_are_not_all_kept() -> None:
    made = writer(1, 0, HEAD_BYTES)
    chunks = [written(made, [b"x"], number) for number in range(200)]
    files = Files(chunks)
    segments = DiskSegments(9, files.read)
    segments.segments = on_disk(chunks)[1].segments
    for offset in (*range(200), *range(200)):
        assert segments.find(offset).first_offset == offset
    before = files.reads
    segments.find(150)
    assert files.reads - before == 1  # its index is there
    segments.find(0)
    assert files.reads - before == 3  # this one is read again
