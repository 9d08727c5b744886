"""The segment files of all streams: appended to in the log's thread, read on the event loop.

A chunk comes here when the block of the log that holds it is synced, so the files need no sync of
their own until the log wants to forget that block: `sync` is called before each checkpoint. A sync
that failed is never tried again: what it was to save may be lost although the next one succeeds.
"""

import errno
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from leveret.errors import CorruptionError, StorageError
from leveret.journal.chunks import WrittenChunk
from leveret.storage.blocks import HEAD_BYTES, check_head, encode_head
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.names import segment_name
from leveret.storage.segments import DiskSegmentStore

OPEN_MAX: Final = 128  # files open at once, for reading and for writing each

Key = tuple[int, int]  # stream, first offset of the segment


class SegmentFiles:
    """Segment files of one data directory."""

    def __init__(self, disk: Disk) -> None:
        self.store = DiskSegmentStore(self.read)
        self._disk = disk
        self._writers: OrderedDict[Key, DiskFile] = OrderedDict()
        self._readers: OrderedDict[Key, DiskFile] = OrderedDict()
        self._unsynced: set[Key] = set()
        self._has_created = False

    # In the log's thread

    def append(self, chunks: list[WrittenChunk]) -> None:
        """Put chunks into their places. Doing it twice does no harm."""
        for chunk in chunks:
            key = (chunk.owner.stream, chunk.segment)
            self._writer(key, is_new=chunk.at == HEAD_BYTES).write([chunk.data], chunk.at)
            self._unsynced.add(key)

    def _writer(self, key: Key, *, is_new: bool) -> DiskFile:
        file = self._writers.get(key)
        if file is None:
            name = segment_name(*key)
            if is_new:
                file = self._create(name, key[0])
            else:
                file = self._disk.open(name)
            self._writers[key] = file
            if len(self._writers) > OPEN_MAX:
                self._close_one()
        else:
            self._writers.move_to_end(key)
        return file

    def _create(self, name: str, stream: int) -> DiskFile:
        file = self._disk.create(name)
        self._has_created = True
        try:
            file.write([encode_head(stream)], 0)
        except OSError:
            file.close()
            raise
        return file

    def _close_one(self) -> None:
        key, file = self._writers.popitem(last=False)
        if key in self._unsynced:
            _sync(file)
            self._unsynced.discard(key)
        file.close()

    def sync(self) -> None:
        """Make everything appended so far survive a loss of power."""
        for key in self._unsynced:
            _sync(self._writers[key])
        self._unsynced.clear()
        if self._has_created:
            self._disk.sync_folder()
            self._has_created = False

    def remove(self, keys: list[Key]) -> None:
        """Nobody wants these any more."""
        for key in keys:
            self._unsynced.discard(key)
            file = self._writers.pop(key, None)
            if file is not None:
                file.close()
            with suppress(FileNotFoundError):
                self._disk.remove(segment_name(*key))

    # On the event loop

    def read(self, stream: int, segment: int, at: int, size: int) -> bytes:
        """Bytes of a segment; raises Corrupt where it is missing or another file."""
        key = (stream, segment)
        file = self._readers.get(key)
        if file is None:
            file = self._open(key)
            self._readers[key] = file
            if len(self._readers) > OPEN_MAX:
                self._readers.popitem(last=False)[1].close()
        else:
            self._readers.move_to_end(key)
        return file.read(size, at)

    def _open(self, key: Key) -> DiskFile:
        name = segment_name(*key)
        try:
            file = self._disk.open(name)
        except FileNotFoundError as fault:
            raise CorruptionError(f"{name} is missing") from fault
        try:
            check_head(file.read(HEAD_BYTES, 0), key[0], name)
        except StorageError as fault:
            file.close()
            raise CorruptionError(str(fault)) from fault
        return file

    def forget(self, keys: list[Key]) -> None:
        """Files that have been removed are not read any more."""
        for key in keys:
            file = self._readers.pop(key, None)
            if file is not None:
                file.close()

    def close(self) -> None:
        """The node has stopped."""
        for files in (self._writers, self._readers):
            for file in files.values():
                file.close()
            files.clear()


def _sync(file: DiskFile) -> None:
    """Not even a lack of room passes here: only the log could write again what is in doubt."""
    try:
        file.sync()
    except OSError as fault:
        raise OSError(errno.EIO, f"{file.name} was not synced: {fault.strerror}") from fault
