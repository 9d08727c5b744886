"""Recovery of streams, from their segments, the checkpoint and the log.

The checkpoint says where each stream ended when its segments were last synced. Chunks after that
point are written again from the log, so bytes that a crash left there do not matter. Chunks that
retention has removed since then are not written, but they keep their place in the segment, so that
later chunks get the same positions as before.

A segment is cut or removed only if the log holds the same chunks (`unexplained_segments`). If the
end of the log is lost and the loss is accepted, a stream keeps the chunks that follow in its
segments, and the rest is set aside.

A fault while one stream is restored is confined to that stream: its segments and its chunks in the
log are set aside (`unrestored_streams`), and the stream goes on behind them.
"""

from collections.abc import Iterator
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.streams.chunk import chunk_bytes, read_chunk
from leveret.engine.streams.segments import Segment
from leveret.engine.streams.stream import Stream
from leveret.errors import CorruptionError
from leveret.journal.chunks import CHUNK_HEAD_BYTES, WrittenChunk
from leveret.journal.records import RECORD_HEAD_BYTES
from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import log_name, segment_name, segments_by_stream
from leveret.storage.replay import Replay, StreamLog
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.unexplained_segments import (
    chunk_ends,
    find_unexplained,
    set_aside,
    shown,
)
from leveret.storage.unrestored_streams import set_aside_stream

STEP_BYTES: Final = 1024 * 1024  # of chunks that are appended in one step


class StreamFaults:
    """The faults of single streams in a recovery: each one is confined to its stream."""

    def __init__(self) -> None:
        self._faults: dict[int, Exception] = {}  # by number of the stream

    def has(self, stream: int) -> bool:
        return stream in self._faults

    def note(self, stream: Stream, fault: Exception) -> None:
        """Note the fault of a stream. Raise a fault of the disk: the next start may succeed."""
        if isinstance(fault, OSError):
            raise fault
        self._faults[int(stream.ledger.id)] = fault
        stream.turn.note_fault(f"restoring {shown(stream)}", fault)

    def text(self, stream: int) -> str:
        fault = self._faults[stream]
        return f"restoring it failed: {type(fault).__name__}: {fault}"


def restore_streams(
    disk: Disk,
    broker: Broker,
    replay: Replay,
    files: SegmentFiles,
    findings: list[str],
    *,
    adopts: bool,
    has_lost_checkpoint: bool,
    unexamined: dict[int, Exception],
) -> Iterator[None]:
    """Restore the segments of every stream, and remove those of deleted streams.

    `adopts` is set if the end of the log may be lost: then the segments tell where the streams end.
    `unexamined` has the faults of streams that `require_explained` could not examine. Add one
    sentence to `findings` for each difference between segments and log. Yield between steps.
    """
    faults = StreamFaults()
    streams = {int(q.ledger.id): q for q in broker.slots.queues if isinstance(q, Stream)}
    found = segments_by_stream(disk.names())
    ends = chunk_ends(disk, replay) if adopts else {}
    for number, stream in streams.items():
        firsts = found.pop(number, [])
        log = replay.streams.get(number, StreamLog())
        told = findings
        if has_lost_checkpoint and log.next_offset == 0 and firsts:
            _guess_checkpoint(log, firsts)
            told = []  # the lost checkpoint is told already
        try:
            if number in unexamined:
                raise unexamined[number]
            if adopts and firsts:
                log = _adopt(disk, files, stream, firsts, log, ends.get(number, 0), told)
            _restore(disk, files, stream, log, firsts)
        except Exception as fault:
            faults.note(stream, fault)
        yield
    _remove_deleted(disk, replay, found)
    findings += _set_aside_unknown(disk, found)
    yield from _append_chunks(disk, streams, replay, files, faults)
    for number, stream in streams.items():
        if faults.has(number):
            log = replay.streams.get(number, StreamLog())
            kept = set_aside_stream(disk, files, stream, log, replay)
            findings.append(f"{shown(stream)}: {faults.text(number)}; {kept}")
            stream.note_damage(CorruptionError(f"{faults.text(number)}; {kept}"))
        else:
            stream.restore(stream.writer.next_offset, stream.writer.last_ms)
    files.sync()


def _remove_deleted(disk: Disk, replay: Replay, found: dict[int, list[int]]) -> None:
    """Remove segments of streams that were deleted just before the node stopped."""
    for number in replay.deleted_queues():
        for first in found.pop(number, []):
            disk.remove(segment_name(number, first))


def _set_aside_unknown(disk: Disk, found: dict[int, list[int]]) -> list[str]:
    """Set aside segments of unknown streams: a new stream may get the same number."""
    findings: list[str] = []
    for number, firsts in found.items():
        for first in firsts:
            name = segment_name(number, first)
            kept = set_aside(disk, name, 0)
            findings.append(f"{name} belongs to no stream that the log knows: it is now {kept}")
    return findings


def _adopt(
    disk: Disk,
    files: SegmentFiles,
    stream: Stream,
    firsts: list[int],
    log: StreamLog,
    end: int,
    findings: list[str],
) -> StreamLog:
    """Return where a stream ends in its segments, and set aside the chunks after a gap.

    `end` is the offset after its last chunk in the log. Segments that are set aside are removed
    from `firsts`.
    """
    number = int(stream.ledger.id)
    end = max(end, int(log.next_offset))
    surveyed = _survey(files, number, firsts, log)
    kept_end = int(surveyed.next_offset)
    if kept_end > end:
        offsets = f"offsets {end} to {kept_end - 1}"
        findings.append(f"{shown(stream)}: {offsets} are missing in the log; segments keep them")
    for chunk in find_unexplained(disk, number, firsts, surveyed, max(end, kept_end)):
        segment = int(chunk.segment)
        name = segment_name(number, segment)
        kept = set_aside(disk, name, int(chunk.at))
        if chunk.at <= HEAD_BYTES:
            firsts.remove(segment)
        offsets = f"the log does not hold offset {chunk.first_offset}"
        findings.append(f"{shown(stream)}: {offsets}: its bytes in {name} are now in {kept}")
    return surveyed


def _guess_checkpoint(log: StreamLog, firsts: list[int]) -> None:
    """Let a stream whose checkpoint is lost begin with its first segment, and end in its last."""
    log.first_offset = max(log.first_offset, firsts[0])
    log.segment = firsts[-1]
    log.next_offset = firsts[-1]


def _survey(files: SegmentFiles, stream: int, firsts: list[int], known: StreamLog) -> StreamLog:
    """Find the end of a stream by reading its segments, from the checkpoint on."""
    log = StreamLog()
    log.first_offset = known.first_offset
    log.cursors = known.cursors
    later = [first for first in firsts if first > known.segment and first >= known.first_offset]
    if known.segment in firsts or not later:
        log.segment = known.segment
        log.at = known.at
        log.began_ms = known.began_ms
        log.next_offset = known.next_offset
    else:  # retention has dropped the segment of the checkpoint
        log.segment = later[0]
        log.next_offset = later[0]
    log.last_ms = known.last_ms
    while True:
        try:
            head = files.read(stream, log.segment, log.at, CHUNK_HEAD_BYTES)
            data = files.read(stream, log.segment, log.at, chunk_bytes(head))
            chunk = read_chunk(data, log.segment, log.at)
        except CorruptionError:
            if log.next_offset not in later or log.next_offset == log.segment:
                return log
            log.segment = log.next_offset
            log.at = HEAD_BYTES
            log.began_ms = 0
            continue
        if chunk.first_offset != log.next_offset:
            return log
        if log.began_ms == 0:
            log.began_ms = chunk.first_ms
        log.at += chunk.size()
        log.next_offset = chunk.end_offset
        log.last_ms = chunk.last_ms


def _restore(
    disk: Disk, files: SegmentFiles, stream: Stream, log: StreamLog, found: list[int]
) -> None:
    """Restore a stream to its state at the checkpoint."""
    kept = files.store.open(stream.ledger.id)
    stream.open(kept)
    stream.writer.next_offset = log.next_offset
    stream.writer.last_ms = log.last_ms
    stream.cursors.load(dict(log.cursors))
    number = int(stream.ledger.id)
    for first in found:
        name = segment_name(number, first)
        if first > log.segment or log.next_offset == 0:
            disk.remove(name)  # made after the checkpoint
        elif first < log.first_offset:
            disk.remove(name)  # dropped by retention, but not removed yet
        else:
            kept.segments.append(_open_segment(disk, number, first))
    _check_first(stream, log)
    _place(disk, stream, log)


def _open_segment(disk: Disk, stream: int, first: int) -> Segment:
    file = disk.open(segment_name(stream, first))
    try:
        size = file.size()
    finally:
        file.close()
    segment = Segment(first, -1, HEAD_BYTES)
    segment.end = size
    return segment


def _check_first(stream: Stream, log: StreamLog) -> None:
    """Note damage if a stream begins later than it should: a segment is lost."""
    kept = stream.segments.segments
    first = int(kept[0].first_offset) if kept else log.next_offset
    if first > log.first_offset:
        stream.note_damage(
            CorruptionError(f"offsets {log.first_offset} to {first - 1} are missing")
        )


def _place(disk: Disk, stream: Stream, log: StreamLog) -> None:
    """Cut the last segment where the checkpoint says that it ended, and append there."""
    kept = stream.segments.segments
    place = stream.writer.position
    if log.segment < log.first_offset:  # dropped by retention since then
        place.resume_at(log.segment, log.at, log.began_ms)
        return
    if not kept or kept[-1].first_offset != log.segment or kept[-1].end < log.at:
        if log.next_offset > 0:
            stream.note_damage(CorruptionError(f"the segment of offset {log.segment} is cut short"))
        place.begin_segment(log.next_offset)
        return
    file = disk.open(segment_name(int(stream.ledger.id), log.segment))
    try:
        file.truncate(log.at)
    finally:
        file.close()
    kept[-1].end = log.at
    place.resume_at(log.segment, log.at, log.began_ms)


def _append_chunks(
    disk: Disk,
    streams: dict[int, Stream],
    replay: Replay,
    files: SegmentFiles,
    faults: StreamFaults,
) -> Iterator[None]:
    """Append the chunks that the log holds beyond the checkpoint. Yield between steps."""
    done_bytes = 0
    opened: dict[int, DiskFile] = {}
    try:
        for number, file, at, size in replay.chunks:
            stream = streams.get(number)
            if stream is None or faults.has(number):
                continue  # deleted later, or set aside
            if file not in opened:
                opened[file] = disk.open(log_name(file))
            data = opened[file].read(size - 8, at + RECORD_HEAD_BYTES + 8)
            try:
                _append(stream, data, replay.first_offset(number), files)
            except Exception as fault:
                faults.note(stream, fault)
            done_bytes += size
            if done_bytes >= STEP_BYTES:
                done_bytes = 0
                yield
    finally:
        for log in opened.values():
            log.close()


def _append(stream: Stream, data: bytes, first_kept: int, files: SegmentFiles) -> None:
    first = int.from_bytes(data[8:16], "little")
    first_ms = int.from_bytes(data[16:24], "little")
    count = int.from_bytes(data[32:36], "little")
    writer = stream.writer
    if first + count <= writer.next_offset:
        return  # already in the segment
    place = writer.position
    if first > writer.next_offset:  # the chunks between are in damaged bytes of the log
        stream.note_damage(
            CorruptionError(f"offsets {writer.next_offset} to {first - 1} are missing")
        )
        place.begin_segment(first)
    if place.segment < first_kept <= first:
        place.begin_segment(first)
    at = place.place_chunk(first, first_ms, len(data))
    if first >= first_kept:
        written = WrittenChunk(writer, place.segment, at, data, first, count, first_ms)
        files.append([written])
        stream.segments.add(written)
    writer.next_offset = first + count
    writer.last_ms = int.from_bytes(data[24:32], "little")
