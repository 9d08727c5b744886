"""Segments of streams on a follower, made from the chunks of committed blocks.

A follower runs no engine. It places chunks as the leader does: by the size and age of segments in
the stream's arguments. The leader may place them otherwise, because a policy can set the age, and
because a new leader places chunks again when it recovers. So the STREAM records of a committed ROLL
block decide (`align`): a segment is split, or later segments are appended to it, until the last
segment is the leader's. A TRIM at an offset inside a segment splits the segment, too.

Everything here runs in the follower's thread. Chunks since the last ROLL are written again after a
restart, because nothing is synced before the next ROLL.
"""

from bisect import bisect_right
from typing import Final

from leveret.engine.arguments.queue_arguments import settings_of
from leveret.engine.arguments.rules import STREAM as STREAM_QUEUE
from leveret.engine.streams.chunk import chunk_bytes
from leveret.engine.streams.stream import SEGMENT_AGES
from leveret.errors import CorruptionError, LeveretError
from leveret.journal.chunks import CHUNK_HEAD_BYTES, ChunkWriter, WritePosition, WrittenChunk
from leveret.journal.records import DEFINE, STREAM
from leveret.storage.block_records import find_records, is_about_stream
from leveret.storage.blocks import HEAD_BYTES, encode_head
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import segment_name, segments_by_stream
from leveret.storage.file_records import decode_queue, decode_stream
from leveret.storage.segment_files import SegmentFiles

_SLICE_BYTES: Final = 1024 * 1024


class _Stream:
    """The segments of one stream, and where its next chunk goes."""

    def __init__(self, number: int, position: WritePosition) -> None:
        self.number = number
        self.position = position
        self.owner = ChunkWriter(position)  # names the stream in the chunks that are written
        self.owner.stream = number
        self.next_offset = 0
        self.first_offset = 0  # messages before it are dropped
        self.firsts: list[int] = []  # first offsets of its segments, ascending

    def name(self, first: int) -> str:
        return segment_name(self.number, first)


class FollowerSegments:
    """The segment files of a follower."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files = SegmentFiles(disk)
        self._streams: dict[int, _Stream] = {}
        # Segments of streams that are newer than the checkpoint: their chunks are written again.
        self._later: dict[int, list[int]] = {}
        self._doomed: list[tuple[int, int]] = []  # segments of deleted streams
        self._deleted: set[int] = set()  # streams that were deleted; no number is used again

    def begin(self, records: bytes, trims: list[tuple[int, int]]) -> None:
        """Cut all segments where a checkpoint says that they ended.

        `trims` are the streams and first offsets of the TRIM records after the checkpoint. If the
        last segment is missing, such a trim has removed it, or the stream was deleted.
        """
        found = segments_by_stream(self._disk.names())
        self.define_all(records)
        for payload in find_records(records, STREAM):
            number, first, segment, end, began_ms, next_offset = decode_stream(payload)
            stream = self._stream(number)
            stream.firsts = found.pop(number, [])
            for later in [f for f in stream.firsts if f > segment or next_offset == 0]:
                self._remove(stream, later)
            if segment in stream.firsts:
                self._cut(stream, segment, end)
            elif next_offset:
                done = [offset for owner, offset in trims if owner == number and offset > segment]
                first = min(done, default=first)
                if not done and segment >= first:
                    self._deleted.add(number)  # the block with the deletion is applied again
            stream.next_offset = next_offset
            stream.position.resume_at(segment, end, began_ms)
            self.trim(number, first)  # a power loss may have undone the removal of segments
        self._later = found

    def define_all(self, records: bytes) -> None:
        """Note the settings of all streams that a checkpoint defines."""
        for payload in find_records(records, DEFINE):
            if is_about_stream(payload, 0, len(payload)):
                self.define(payload)

    def define(self, payload: bytes) -> None:
        """Note the settings of a stream from its DEFINE record, or remove a deleted stream."""
        op, number, arguments = decode_queue(payload)
        if op == "queue-":
            stream = self._streams.pop(number, None)
            if stream is not None:
                self._deleted.add(number)
                self._files.remove([(number, first) for first in stream.firsts])
        elif op == "queue" and number not in self._streams:
            try:
                settings = settings_of(STREAM_QUEUE, arguments)
            except LeveretError:
                return  # use the default settings; `align` corrects the segments
            age_ms = int(settings.max_age_ms)
            segment_ms = age_ms // SEGMENT_AGES if age_ms > 0 else 0
            self._add_stream(number, WritePosition(settings.segment_bytes, segment_ms, HEAD_BYTES))

    def _stream(self, number: int) -> _Stream:
        found = self._streams.get(number)
        if found is None:  # its definition is unknown: use the default settings
            settings = settings_of(STREAM_QUEUE, {})
            found = self._add_stream(number, WritePosition(settings.segment_bytes, 0, HEAD_BYTES))
        return found

    def _add_stream(self, number: int, place: WritePosition) -> _Stream:
        made = _Stream(number, place)
        self._streams[number] = made
        self._files.remove([(number, first) for first in self._later.pop(number, [])])
        return made

    def append(self, number: int, data: bytes) -> None:
        """Append a chunk, unless the stream has it already. A failed call can be repeated."""
        first = int.from_bytes(data[8:16], "little")
        first_ms = int.from_bytes(data[16:24], "little")
        count = int.from_bytes(data[32:36], "little")
        if number in self._deleted or (number not in self._streams and first):
            return  # the stream was deleted while the leader wrote this chunk
        stream = self._stream(number)
        place = stream.position
        if first + count <= stream.next_offset:
            return
        if first > stream.next_offset:
            raise CorruptionError(
                f"stream {number}: offsets {stream.next_offset} to {first - 1} are missing"
            )
        before = (int(place.segment), int(place.at), int(place.began_ms))
        if place.segment < stream.first_offset <= first:
            place.begin_segment(first)
        at = place.place_chunk(first, first_ms, len(data))
        if first >= stream.first_offset:
            segment = int(place.segment)
            try:
                self._files.append(
                    [WrittenChunk(stream.owner, segment, at, data, first, count, first_ms)]
                )
            except OSError:
                place.resume_at(*before)
                raise
            if not stream.firsts or stream.firsts[-1] < segment:
                stream.firsts.append(segment)
        stream.next_offset = first + count

    def end_offset(self, number: int) -> int:
        """Return where the written chunks of a stream end. Any thread may ask."""
        stream = self._streams.get(number)
        return stream.next_offset if stream is not None else 0

    def trim(self, number: int, first_offset: int) -> None:
        """Remove the messages of a stream before an offset."""
        if number in self._deleted:
            return
        stream = self._stream(number)
        if first_offset <= stream.first_offset:
            return
        self._split(stream, first_offset)
        for first in [f for f in stream.firsts if f < first_offset]:
            self._remove(stream, first)
        stream.first_offset = first_offset

    def align(self, records: bytes) -> None:
        """Give every stream the segments of the leader, as a committed ROLL block lists them.

        Segments of deleted streams stay until `remove_deleted`, when the ROLL block is settled: a
        start before that needs them.
        """
        self.define_all(records)
        known: set[int] = set()
        for payload in find_records(records, STREAM):
            number, first, segment, end, began_ms, next_offset = decode_stream(payload)
            known.add(number)
            stream = self._stream(number)
            if stream.next_offset != next_offset:
                raise CorruptionError(
                    f"stream {number} ends with offset {stream.next_offset} instead of "
                    f"{next_offset}"
                )
            self.trim(number, first)
            place = stream.position
            if next_offset and segment >= first and (place.segment, place.at) != (segment, end):
                self._split(stream, segment)
                self._join(stream, segment)
                if self._size(stream, segment) != end:
                    raise CorruptionError(f"{stream.name(segment)} should have {end} bytes")
            place.resume_at(segment, end, began_ms)
        for number, firsts in self._later.items():
            self._doomed += [(number, first) for first in firsts]
        for number in [n for n in self._streams if n not in known]:
            stream = self._streams.pop(number)
            self._doomed += [(number, first) for first in stream.firsts]
        self._later = {}

    def remove_deleted(self) -> None:
        """Remove the segments of streams that the last `align` found deleted."""
        self._files.remove(self._doomed)
        self._doomed = []

    def sync(self) -> None:
        """Make all segments survive a power loss."""
        self._files.sync()

    def close(self) -> None:
        self._files.close()

    def _remove(self, stream: _Stream, first: int) -> None:
        self._files.remove([(stream.number, first)])
        stream.firsts.remove(first)

    def _cut(self, stream: _Stream, first: int, end: int, *, syncs: bool = False) -> None:
        file = self._disk.open(stream.name(first))
        try:
            if file.size() > end:
                file.truncate(end)
            if syncs:
                file.sync()
        finally:
            file.close()

    def _size(self, stream: _Stream, first: int) -> int:
        file = self._disk.open(stream.name(first))
        try:
            return file.size()
        finally:
            file.close()

    def _split(self, stream: _Stream, offset: int) -> None:
        """Split the segment around an offset there, if a chunk begins at the offset."""
        if offset in stream.firsts or not stream.firsts or offset < stream.firsts[0]:
            return
        place = bisect_right(stream.firsts, offset)
        whole = stream.firsts[place - 1]
        file = self._disk.open(stream.name(whole))
        try:
            at = _find_chunk(file, offset)
            if at == 0:
                return
            self._copy(stream, offset, file, at)
        finally:
            file.close()
        self._cut(stream, whole, at, syncs=True)
        stream.firsts.insert(place, offset)
        if stream.position.segment == whole:
            began_ms = int(stream.position.began_ms)
            end = int(stream.position.at)
            stream.position.resume_at(offset, HEAD_BYTES + end - at, began_ms)

    def _copy(self, stream: _Stream, first: int, source: DiskFile, at: int) -> None:
        """Write the chunks of a file from `at` on to a segment of their own."""
        name = stream.name(first)
        made = self._disk.create(name + ".new")
        try:
            made.write([encode_head(stream.number)], 0)
            _append_bytes(made, HEAD_BYTES, source, at)
            made.sync()
        finally:
            made.close()
        self._disk.rename(name + ".new", name)
        self._disk.sync_folder()

    def _join(self, stream: _Stream, first: int) -> None:
        """Append all later segments to one, which then is the last segment."""
        later = [f for f in stream.firsts if f > first]
        if not later:
            return
        made = self._disk.open(stream.name(first))
        try:
            for other in later:
                file = self._disk.open(stream.name(other))
                try:
                    _append_bytes(made, made.size(), file, HEAD_BYTES)
                finally:
                    file.close()
            made.sync()
        finally:
            made.close()
        for other in later:
            self._remove(stream, other)


def _find_chunk(file: DiskFile, offset: int) -> int:
    """Return where the chunk with this first offset begins in a segment; 0 if there is none."""
    at = HEAD_BYTES
    while True:
        head = file.read(CHUNK_HEAD_BYTES, at)
        size = int(chunk_bytes(head))
        first = int.from_bytes(head[8:16], "little")
        if size == 0 or first > offset:
            return 0
        if first == offset:
            return at
        at += size


def _append_bytes(target: DiskFile, at: int, source: DiskFile, start: int) -> None:
    """Copy a file from `start` on to another, at `at`."""
    while data := source.read(_SLICE_BYTES, start):
        target.write([data], at)
        at += len(data)
        start += len(data)
