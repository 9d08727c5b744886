"""Starting again: streams, from their segments, the checkpoint and the log.

The checkpoint says where each stream ended when its segments were last synced. What stands behind
that in a segment is written again, from the log: whatever a crash left there does not matter.
"""

from leveret.engine.broker import Broker
from leveret.engine.streams.segments import Segment
from leveret.engine.streams.stream import Stream
from leveret.errors import Corrupt
from leveret.journal.chunks import CHUNK_HEAD_BYTES, Written
from leveret.journal.records import RECORD_HEAD_BYTES
from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.names import log_name, segment_name, segments
from leveret.storage.replay import Replay, StreamLog
from leveret.storage.segment_files import SegmentFiles


def restore_streams(disk: Disk, broker: Broker, replay: Replay, files: SegmentFiles) -> None:
    """Give every stream its segments back, and remove those of streams that were deleted."""
    found = segments(disk.names())
    for queue in broker.slots.queues:
        if isinstance(queue, Stream):
            number = int(queue.ledger.id)
            log = replay.streams.get(number, StreamLog())
            _restore(disk, files, queue, log, found.pop(number, []))
    for stream, left in found.items():
        for first in left:
            disk.remove(segment_name(stream, first))
    _append_chunks(disk, broker, replay, files)
    for queue in broker.slots.queues:
        if isinstance(queue, Stream):
            log = replay.streams.get(int(queue.ledger.id), StreamLog())
            _drop_forgotten(queue, log.first_offset, files)
            queue.restore(queue.writer.next_offset, queue.writer.last_ms)
    files.sync()


def _restore(
    disk: Disk, files: SegmentFiles, stream: Stream, log: StreamLog, found: list[int]
) -> None:
    """The stream as it was at the checkpoint."""
    kept = files.store.open(stream.ledger.id)
    stream.open(kept)
    stream.writer.next_offset = log.next_offset
    stream.writer.last_ms = log.last_ms
    stream.cursors.cursors = dict(log.cursors)
    number = int(stream.ledger.id)
    for first in found:
        name = segment_name(number, first)
        if first > log.segment or log.next_offset == 0:
            disk.remove(name)  # was made after the checkpoint
        elif first < log.first_offset and first != log.segment:
            disk.remove(name)  # was forgotten before it could be removed
        else:
            kept.segments.append(_open_segment(disk, files, number, first))
    _check_first(stream, log)
    _place(disk, stream, log)


def _open_segment(disk: Disk, files: SegmentFiles, stream: int, first: int) -> Segment:
    file = disk.open(segment_name(stream, first))
    try:
        size = file.size()
    finally:
        file.close()
    segment = Segment(first, 0, HEAD_BYTES)
    segment.end = size
    try:
        head = files.read(stream, first, HEAD_BYTES, CHUNK_HEAD_BYTES)
        segment.first_ms = int.from_bytes(head[16:24], "little")
    except Corrupt:
        pass  # whoever reads it is told
    return segment


def _check_first(stream: Stream, log: StreamLog) -> None:
    """A stream that begins later than it should has lost a segment."""
    kept = stream.segments.segments
    first = int(kept[0].first_offset) if kept else log.next_offset
    if first > log.first_offset:
        stream.note_damage(Corrupt(f"offsets {log.first_offset} to {first - 1} are missing"))


def _place(disk: Disk, stream: Stream, log: StreamLog) -> None:
    """Cut the last segment where the checkpoint says that it ended, and go on there."""
    kept = stream.segments.segments
    place = stream.writer.place
    if not kept or kept[-1].first_offset != log.segment or kept[-1].end < log.at:
        if log.next_offset > 0:
            stream.note_damage(Corrupt(f"the segment of offset {log.segment} is cut short"))
        place.segment = log.next_offset
        return
    file = disk.open(segment_name(int(stream.ledger.id), log.segment))
    try:
        file.truncate(log.at)
    finally:
        file.close()
    kept[-1].end = log.at
    place.segment = log.segment
    place.at = log.at
    place.began_ms = log.began_ms


def _drop_forgotten(stream: Stream, first_offset: int, files: SegmentFiles) -> None:
    """What was written again may have been forgotten before."""
    kept = stream.segments.segments
    while len(kept) > 1 and kept[1].first_offset <= first_offset:
        dropped = stream.segments.drop_first()
        key = (int(stream.ledger.id), int(dropped.first_offset))
        files.remove([key])
        files.forget([key])


def _append_chunks(disk: Disk, broker: Broker, replay: Replay, files: SegmentFiles) -> None:
    """Write what the log has beyond the checkpoint."""
    by_id = {int(q.ledger.id): q for q in broker.slots.queues if isinstance(q, Stream)}
    opened: dict[int, DiskFile] = {}
    try:
        for number, file, at, size in replay.chunks:
            stream = by_id.get(number)
            if stream is None:
                continue  # deleted since
            if file not in opened:
                opened[file] = disk.open(log_name(file))
            data = opened[file].read(size - 8, at + RECORD_HEAD_BYTES + 8)
            _append(stream, data, files)
    finally:
        for log in opened.values():
            log.close()


def _append(stream: Stream, data: bytes, files: SegmentFiles) -> None:
    first = int.from_bytes(data[8:16], "little")
    first_ms = int.from_bytes(data[16:24], "little")
    count = int.from_bytes(data[32:36], "little")
    writer = stream.writer
    if first != writer.next_offset:
        raise Corrupt(
            f"stream '{stream.name}' goes on at offset {first} instead of {writer.next_offset}"
        )
    at = writer.place.put(first, first_ms, len(data))
    written = Written(writer, writer.place.segment, at, data, first, count, first_ms)
    files.append([written])
    stream.segments.add(written)
    writer.next_offset = first + count
    writer.last_ms = int.from_bytes(data[24:32], "little")
