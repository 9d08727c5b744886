"""The segment files of all streams: appended in the log's thread, read on the event loop.

A chunk is appended when its block of the log is synced. So segment files need no sync of their own
until the log may remove that block: `sync` is called before each checkpoint. A failed sync is never
tried again, because a later sync can succeed although the data is lost.
"""

import errno
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from leveret.errors import CorruptionError, StorageError
from leveret.journal.chunks import WrittenChunk
from leveret.storage.blocks import HEAD_BYTES, check_head, encode_head
from leveret.storage.disk import Disk, DiskFile, descriptors_max
from leveret.storage.file_names import segment_name
from leveret.storage.segments import DiskSegmentStore

OPEN_MAX: Final = 128  # open files at once, for reading and for writing each
# Both together take a sixteenth of all descriptors, so that many streams leave some for clients.
OPEN_SHARE: Final = 32

Key = tuple[int, int]  # stream, first offset of the segment


class SegmentFiles:
    """The segment files of one data directory.

    `append`, `sync` and `remove` run in the log's thread, the other methods on the event loop.
    """

    def __init__(self, disk: Disk) -> None:
        self.store = DiskSegmentStore(self.read)
        self._disk = disk
        files_max = descriptors_max()
        self._open_max = min(OPEN_MAX, files_max // OPEN_SHARE) if files_max else OPEN_MAX
        self._writers: OrderedDict[Key, DiskFile] = OrderedDict()
        self._readers: OrderedDict[Key, DiskFile] = OrderedDict()
        self._unsynced: set[Key] = set()
        self._has_created = False

    def append(self, chunks: list[WrittenChunk]) -> None:
        """Write chunks to their positions. Writing them twice does no harm."""
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
            if len(self._writers) > self._open_max:
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
        """Make everything appended so far survive a power loss."""
        for key in self._unsynced:
            _sync(self._writers[key])
        self._unsynced.clear()
        if self._has_created:
            self._disk.sync_folder()
            self._has_created = False

    def remove(self, keys: list[Key]) -> None:
        """Remove segments that are not needed."""
        for key in keys:
            self._unsynced.discard(key)
            file = self._writers.pop(key, None)
            if file is not None:
                file.close()
            with suppress(FileNotFoundError):
                self._disk.remove(segment_name(*key))

    def read(self, stream: int, segment: int, at: int, size: int) -> bytes:
        """Return bytes of a segment.

        Raise CorruptionError if it is missing or another file, or if the disk cannot read it.
        """
        key = (stream, segment)
        file = self._readers.get(key)
        if file is None:
            file = self._open(key)
            self._readers[key] = file
            if len(self._readers) > self._open_max:
                self._readers.popitem(last=False)[1].close()
        else:
            self._readers.move_to_end(key)
        try:
            return file.read(size, at)
        except OSError as fault:
            if fault.errno != errno.EIO:
                raise
            text = f"{segment_name(*key)} cannot be read at byte {at}: {fault.strerror}"
            raise CorruptionError(text) from fault

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
        """Close the readers of segments that were removed."""
        for key in keys:
            file = self._readers.pop(key, None)
            if file is not None:
                file.close()

    def close_stream(self, stream: int) -> None:
        """Close the files of one stream, which get other names."""
        self._unsynced = {key for key in self._unsynced if key[0] != stream}
        for files in (self._writers, self._readers):
            for key in [key for key in files if key[0] == stream]:
                files.pop(key).close()

    def close(self) -> None:
        """Close all files."""
        for files in (self._writers, self._readers):
            for file in files.values():
                file.close()
            files.clear()


def _sync(file: DiskFile) -> None:
    """Sync a file. Turn every fault into EIO, so that the log does not retry after a full disk."""
    try:
        file.sync()
    except OSError as fault:
        raise OSError(errno.EIO, f"{file.name} was not synced: {fault.strerror}") from fault
