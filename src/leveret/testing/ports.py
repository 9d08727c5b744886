"""Ports of the loopback interface for servers that tests start as processes.

A server is told its port before it listens, and may be killed and started again on it. A port from
the range from which the system serves requests for any free port could belong to another process by
then. So these ports are below that range, and each is claimed by a lock for as long as this process
lives: no other process that asks here gets it.
"""

import itertools
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
# Linux gives out ports from 32,768 on, other systems from 49,152 on.
FIRST: Final = 20_000
LAST: Final = 32_000
_claimed: Final[list[int]] = []  # descriptors of locks: open until this process ends
# Processes begin at different places: most ports are free at the first look.
_next: Final = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """Return a port of the loopback interface without a listener, for this process alone."""
    for _ in range(FIRST, LAST):
        port = FIRST + next(_next) % (LAST - FIRST)
        if _is_claimed(port):
            return port
    raise OSError("no port is free")


def _is_claimed(port: int) -> bool:
    """Claim a port; return False if another process listens on it or has claimed it."""
    lock = -1
    try:
        lock = _lock(port)
        with socket.create_server((HOST, port)):
            pass
    except OSError:
        if lock >= 0:
            os.close(lock)
        return False
    if lock >= 0:
        _claimed.append(lock)
    return True


def _lock(port: int) -> int:
    """Lock a port; return the descriptor of the lock, or raise OSError."""
    if sys.platform == "win32":
        return -1
    import fcntl  # Windows does not have it

    folder = Path(tempfile.gettempdir()) / f"leveret-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
