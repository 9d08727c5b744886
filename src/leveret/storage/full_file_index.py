"""The index of a full log file, made by a follower."""

from typing import Final

from librt.strings import BytesWriter

from leveret.storage.block_reader import BlockCursor
from leveret.storage.block_records import index_block
from leveret.storage.checkpoint import WholeFile
from leveret.storage.disk import Disk, DiskFile, is_full
from leveret.storage.file_names import index_name, log_name

# An index is written in parts of this size. The C library would keep the memory of a whole one.
PART_BYTES: Final = 1024 * 1024


def index_full_file(disk: Disk, number: int, first: int) -> None:
    """Make the index of a full log file from the file, unless it exists.

    An index only makes the next recovery quicker. So a full disk, or damage in the file, is no
    reason to stop.
    """
    if index_name(number) in disk.names():
        return
    file = disk.open(log_name(number))
    try:
        with WholeFile(disk, index_name(number), number) as index:
            if _write_entries(file, first, index) and index.size > 0:
                index.finish()
    except OSError as fault:
        if not is_full(fault):
            raise
    finally:
        file.close()


def _write_entries(file: DiskFile, first: int, index: WholeFile) -> bool:
    """Return False if the file is damaged: a recovery reads the file itself, and reports it."""
    cursor = BlockCursor(file)
    writer = BytesWriter()
    at = cursor.at
    while block := cursor.take(first):
        index_block(writer, block, at)
        if len(writer) >= PART_BYTES:
            index.add([writer.getvalue()])
            writer = BytesWriter()
        at = cursor.at
        first += 1
    index.add([writer.getvalue()])
    return at == file.size()
