"""Lock files, so that two runs of one command do not meet. Does not import Spark."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from leveret.errors import ResourceLockedError

_LOCKS: Final = Path("/proc/locks")


@contextmanager
def exclusive_lock(path: Path, reason: str) -> Iterator[None]:
    """Hold a lock file. The system releases it even if the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ResourceLockedError(reason) from None
        yield


def is_locked(path: Path) -> bool | None:
    """Return True if a process of this machine holds a lock file; None if it cannot be known.

    The lock itself is not touched: trying it could make a command fail that starts just then.
    """
    if not path.is_file():
        return False
    try:
        held = _LOCKS.read_text()
    except OSError:  # not on Linux
        return None
    # A line is `1: FLOCK ADVISORY WRITE 4711 08:01:1337 0 EOF`: process, device, inode.
    rows = [line.split() for line in held.splitlines()]
    inodes = {row[5].rpartition(":")[2] for row in rows if len(row) > 5 and row[1] == "FLOCK"}
    return str(path.stat().st_ino) in inodes
