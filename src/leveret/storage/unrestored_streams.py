"""Set aside a stream that a fault kept from being restored, and let it go on behind its messages.

The bytes of its segments stay on disk under other names. The chunks that may be only in the log are
copied to a side file before the log forgets them, in the format of a segment. Nothing is deleted.
"""

from leveret.engine.streams.stream import Stream
from leveret.journal.records import RECORD_HEAD_BYTES
from leveret.storage.blocks import HEAD_BYTES, encode_head
from leveret.storage.disk import Disk
from leveret.storage.file_names import (
    log_name,
    segment_name,
    segments_by_stream,
    unexplained_name,
)
from leveret.storage.replay import Replay, StreamLog
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.unexplained_segments import chunk_ends, set_aside


def set_aside_stream(
    disk: Disk, files: SegmentFiles, stream: Stream, log: StreamLog, replay: Replay
) -> str:
    """Set aside all messages of a stream, and begin it anew after its last offset.

    Return a text that names the files with its messages.
    """
    number = int(stream.ledger.id)
    files.close_stream(number)
    firsts = segments_by_stream(disk.names()).get(number, [])
    kept = [set_aside(disk, segment_name(number, first), 0) for first in firsts]
    kept += _copy_chunks(disk, number, int(log.next_offset), replay)
    end = max([int(log.next_offset), chunk_ends(disk, replay).get(number, 0), *firsts])
    stream.open(files.store.open(stream.ledger.id))
    stream.writer.position.begin_segment(end)
    stream.cursors.load(dict(log.cursors))
    stream.restore(end, log.last_ms)
    return f"its messages are kept in {', '.join(kept) or 'no file: it had none'}"


def _copy_chunks(disk: Disk, stream: int, first: int, replay: Replay) -> list[str]:
    """Copy the chunks of a stream from the log to a side file; return its name, if it has any.

    `first` is the offset after the last synced segment, at which these chunks begin.
    """
    places = [(file, at, size) for number, file, at, size in replay.chunks if number == stream]
    if not places:
        return []
    name = unexplained_name(segment_name(stream, first), 0)
    while name in disk.names():  # chunks that were set aside before are kept too
        name += "+"
    target = disk.create(name + ".new")
    try:
        target.write([encode_head(stream)], 0)
        end = HEAD_BYTES
        for file, at, size in places:
            log = disk.open(log_name(file))
            try:
                data = log.read(size - 8, at + RECORD_HEAD_BYTES + 8)
            finally:
                log.close()
            target.write([data], end)
            end += len(data)
        target.sync()
    finally:
        target.close()
    disk.rename(name + ".new", name)
    disk.sync_folder()
    return [name]
