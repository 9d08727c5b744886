"""The incarnation of a node: a number that grows with every start, even if the clock is set back.

It tells other nodes that a node has restarted, and which of two processes is newer.
"""

from typing import Final

from leveret.errors import CorruptionError
from leveret.storage.disk import Disk

NAME: Final = "incarnation"
_NEW: Final = NAME + ".new"
_DIGITS_MAX: Final = 18


def next_incarnation(disk: Disk, now_ms: int) -> int:
    """A number above all before it, on disk before anybody is told it."""
    number = max(_last(disk) + 1, now_ms)
    file = disk.create(_NEW)
    try:
        file.write([str(number).encode()], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(_NEW, NAME)
    disk.sync_folder()
    return number


def _last(disk: Disk) -> int:
    if NAME not in disk.names():
        return 0
    file = disk.open(NAME)
    try:
        text = file.read(_DIGITS_MAX + 1, 0)
    finally:
        file.close()
    if not text.isdigit() or len(text) > _DIGITS_MAX:
        raise CorruptionError(f"{NAME} holds {text!r}, which is no number")
    return int(text)
