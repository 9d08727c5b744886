"""Create log files, and open them for reading messages back."""

import errno

from leveret.errors import CorruptionError
from leveret.storage.blocks import encode_head
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import log_name


def create_log(disk: Disk, number: int) -> DiskFile:
    """Create a log file that survives a power loss."""
    file = disk.create(log_name(number))
    try:
        file.write([encode_head(number)], 0)
        file.sync()
        disk.sync_folder()
    except OSError:
        file.close()
        raise
    return file


class LogFiles:
    """The open log files of a node. Each is opened at the first read."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[int, DiskFile] = {}

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes of a log file; raise CorruptionError if it is missing or unreadable."""
        file = self._files.get(number)
        if file is None:
            try:
                file = self._disk.open(log_name(number))
            except FileNotFoundError as fault:
                raise CorruptionError(f"{log_name(number)} is missing") from fault
            self._files[number] = file
        try:
            return file.read(size, offset)
        except OSError as fault:
            if fault.errno != errno.EIO:
                raise
            raise CorruptionError(f"{log_name(number)} cannot be read: {fault.strerror}") from fault

    def forget(self, number: int) -> None:
        """Close a file that has been removed."""
        file = self._files.pop(number, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
