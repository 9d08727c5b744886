"""The index of a full log file, made by a follower."""

from typing import Final

from librt.strings import BytesWriter

from leveret.heap import give_back_memory
from leveret.storage.block_reader import BlockCursor
from leveret.storage.block_records import index_block
from leveret.storage.checkpoint import write_index
from leveret.storage.disk import Disk, is_full
from leveret.storage.file_names import index_name, log_name

LONG_BYTES: Final = 1024 * 1024  # the memory of an index of this size is worth giving back


def index_full_file(disk: Disk, number: int, first: int) -> None:
    """Make the index of a full log file from the file, unless it exists.

    An index only makes the next recovery quicker. So a full disk, or damage in the file, is no
    reason to stop.
    """
    if index_name(number) in disk.names():
        return
    writer = BytesWriter()
    file = disk.open(log_name(number))
    try:
        cursor = BlockCursor(file)
        at = cursor.at
        while block := cursor.take(first):
            index_block(writer, block, at)
            at = cursor.at
            first += 1
        if at != file.size():
            return  # the file is damaged: a recovery reads the file itself, and reports it
    finally:
        file.close()
    index = writer.getvalue()
    try:
        write_index(disk, number, index)
    except OSError as fault:
        if not is_full(fault):
            raise
    if len(index) > LONG_BYTES:
        del writer, index
        give_back_memory()
