"""Memory, descriptors, disk space and processors of the node, read from the operating system.

A read takes a fraction of a millisecond on Linux. A figure that the system does not give is 0.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory_used_bytes() -> int:
    """Return the resident memory of this process."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0


def descriptors_used() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0


def descriptors_max() -> int:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 0
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def context_switches() -> int:
    try:
        import resource
    except ImportError:
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw + used.ru_nivcsw


def disk_free_bytes(folder: Path | None) -> int:
    """Return the free space of the disk with the data directory; 0 without one."""
    if folder is None:
        return 0
    with contextlib.suppress(OSError):
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
    return 0


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float:
    """Return the load average of the last minute."""
    with contextlib.suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return 0.0
