"""Segments with messages that are missing in the log: they show that the log has lost its end.

A chunk is copied to its segment after the sync of its block. So each chunk in a segment is older
than the checkpoint, or the log holds it too. A chunk after the end of its stream, or the segment of
a stream that was never declared, shows that the log has lost blocks. Bytes like these are called
*unexplained*. They are never deleted: a start refuses them, or sets them aside under another name.
"""

from leveret.engine.broker import Broker
from leveret.engine.streams.chunk import Chunk, chunk_bytes, read_chunk
from leveret.engine.streams.stream import Stream
from leveret.errors import CorruptionError
from leveret.journal.chunks import CHUNK_HEAD_BYTES
from leveret.journal.records import RECORD_HEAD_BYTES
from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.checkpoint import read_file
from leveret.storage.damage import ADVICE
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import (
    log_name,
    segment_name,
    segments_by_stream,
    unexplained_name,
)
from leveret.storage.replay import Replay, StreamLog


def require_explained(disk: Disk, broker: Broker, replay: Replay) -> dict[int, Exception]:
    """Raise CorruptionError if a segment shows that the end of the log is missing.

    Return the faults of streams that could not be examined, by number.
    """
    faults: dict[int, Exception] = {}
    found = segments_by_stream(disk.names())
    ends = chunk_ends(disk, replay)
    for queue in broker.slots.queues:
        if isinstance(queue, Stream):
            number = int(queue.ledger.id)
            firsts = found.pop(number, [])
            log = replay.streams.get(number, StreamLog())
            end = max(int(log.next_offset), ends.get(number, 0))
            try:
                chunks = find_unexplained(disk, number, firsts, log, end)
            except Exception as fault:
                faults[number] = fault
                continue
            for chunk in chunks:
                name = segment_name(number, int(chunk.segment))
                text = f"{name} holds offset {max(int(chunk.first_offset), end)} of {shown(queue)}"
                raise CorruptionError(f"{text}, and the log ends before that offset: {ADVICE}")
    for number in sorted(found):
        if number > broker.slots.last_id and number not in replay.deleted_queues():
            name = segment_name(number, found[number][0])
            text = f"{name} belongs to a stream that is missing in the log"
            raise CorruptionError(f"{text}: {ADVICE}")
    return faults


def shown(stream: Stream) -> str:
    """Return a stream's name for a report."""
    return f"stream '{stream.name}' in vhost '{stream.vhost}'"


def chunk_ends(disk: Disk, replay: Replay) -> dict[int, int]:
    """Return the offset after the last chunk in the log, for each stream that has one there."""
    last = {stream: (file, at) for stream, file, at, _ in replay.chunks}
    ends: dict[int, int] = {}
    for stream, (number, at) in last.items():
        file = disk.open(log_name(number))
        try:
            head = file.read(CHUNK_HEAD_BYTES, at + RECORD_HEAD_BYTES + 8)
        finally:
            file.close()
        ends[stream] = _end_offset(head)
    return ends


def _end_offset(head: bytes) -> int:
    """Return the offset after the last message of the chunk with this head."""
    return int.from_bytes(head[8:16], "little") + int.from_bytes(head[32:36], "little")


def find_unexplained(
    disk: Disk, stream: int, firsts: list[int], log: StreamLog, end: int
) -> list[Chunk]:
    """Return the first chunk of each segment that holds messages from offset `end` on.

    `log` is the stream at the checkpoint, and `end` is its end in the log. Segments before the
    checkpoint, and those that retention has dropped, are explained.
    """
    found: list[Chunk] = []
    for first in firsts:
        if first < log.segment or first < log.first_offset:
            continue
        at = int(log.at) if first == log.segment else HEAD_BYTES
        file = disk.open(segment_name(stream, first))
        try:
            chunk = _first_after(file, first, at, end)
        finally:
            file.close()
        if chunk is not None:
            found.append(chunk)
    return found


def _first_after(file: DiskFile, segment: int, at: int, end: int) -> Chunk | None:
    """Return the first valid chunk of a segment that ends after an offset."""
    while True:
        head = file.read(CHUNK_HEAD_BYTES, at)
        size = int(chunk_bytes(head))
        if size == 0:
            return None
        if _end_offset(head) > end:
            try:
                return read_chunk(file.read(size, at), segment, at)
            except CorruptionError:
                return None  # a chunk that was never complete
        at += size


def find_damaged_chunks(disk: Disk, stream: int, first: int) -> list[str]:
    """Verify every chunk of a segment, and describe the damaged ones.

    The size of a damaged chunk may be wrong. If no valid chunk follows it, the rest is unknown.
    """
    name = segment_name(stream, first)
    found: list[str] = []
    file = disk.open(name)
    try:
        at, size = HEAD_BYTES, file.size()
        offset = first  # offset of the next message, as far as it is known
        while at < size:
            head = file.read(CHUNK_HEAD_BYTES, at)
            stop = min(at + int(chunk_bytes(head)), size) if chunk_bytes(head) else size
            try:
                offset = int(read_chunk(file.read(stop - at, at), first, at).end_offset)
            except CorruptionError as fault:
                place = f"damaged from byte {at} to {stop}, from offset {offset} on"
                found.append(f"{name}: {place}: {fault}")
            at = stop
    finally:
        file.close()
    return found


def set_aside(disk: Disk, name: str, at: int) -> str:
    """Keep the bytes of a segment from an offset on in a file of their own; return its name."""
    start = 0 if at <= HEAD_BYTES else at
    target = unexplained_name(name, start)
    names = disk.names()
    while target in names:  # bytes that were set aside before are kept too
        target += "+"
    if start == 0:
        disk.rename(name, target)
    else:
        file = disk.create(target)
        try:
            file.write([read_file(disk, name)[start:]], 0)
            file.sync()
        finally:
            file.close()
    disk.sync_folder()
    return target
