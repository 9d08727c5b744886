"""Ports of the loopback interface for servers that tests and tools start.

A server is told its port before it listens, and may be killed and started again on it. A port from
the range that the system gives to whoever asks for any could be somebody else's by then; so these
are from below that range, and each is claimed by a lock for as long as this process lives: no other
process that asks here gets it.
"""

import fcntl
import itertools
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
# Linux gives out ports from 32,768 on, other systems from 49,152 on.
FIRST: Final = 20_000
LAST: Final = 32_000
_LOCKS: Final = Path(tempfile.gettempdir()) / f"leveret-ports-{os.getuid()}"
_claimed: Final[list[int]] = []  # descriptors of locks: open until this process ends
# Processes begin at different places: most ports are free at the first look.
_next: Final = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on, for this process alone."""
    _LOCKS.mkdir(exist_ok=True)
    for _ in range(FIRST, LAST):
        port = FIRST + next(_next) % (LAST - FIRST)
        if _is_claimed(port):
            return port
    raise OSError("no port is free")


def _is_claimed(port: int) -> bool:
    lock = os.open(_LOCKS / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.create_server((HOST, port)):
            pass
    except OSError:
        os.close(lock)
        return False
    _claimed.append(lock)
    return True
