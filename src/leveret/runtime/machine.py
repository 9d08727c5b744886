"""Memory, descriptors, disk space and processors of the node, read from the operating system.

A read takes a fraction of a millisecond on Linux. A figure that the system does not give is 0.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from leveret.http.framework.node import Machine
from leveret.storage.disk import descriptors_max

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


def read_machine(
    folder: Path | None,
    *,
    started_ms: int = 0,
    held_bytes: int = 0,
    limit_bytes: int = 0,
    disk_limit_bytes: int = 0,
) -> Machine:
    """Return all figures of the process and its machine, as of now."""
    return Machine(
        pid=os.getpid(),
        started_ms=started_ms,
        memory_used_bytes=memory_used_bytes(),
        memory_held_bytes=held_bytes,
        memory_limit_bytes=limit_bytes,
        disk_free_bytes=disk_free_bytes(folder),
        disk_limit_bytes=disk_limit_bytes,
        descriptors_used=descriptors_used(),
        descriptors_max=descriptors_max(),
        processors=processors(),
        load=load(),
        context_switches=context_switches(),
        data=str(folder) if folder is not None else "",
    )
