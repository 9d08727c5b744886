"""Ctrl+C in a Spark command: end the command without a Python or Java stack trace.

PySpark's signal handler calls Java from inside the call that it interrupts, and Py4J logs the
failure. A JVM that is still starting prints a long error because its parent has gone.
"""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PY4J: Final = "java_gateway"  # the module of Py4J that also writes to the root logger


@contextmanager
def clean_interrupts_during_startup() -> Iterator[None]:
    """Kill the JVM on Ctrl+C while Spark starts, then restore Python's own signal handler."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_py4j)
    before = _children()
    try:
        yield
    except KeyboardInterrupt:
        for pid in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return record.module != _PY4J


def _children() -> set[int]:
    """Return the child processes of this process; none if the system has no /proc."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found.update(int(pid) for pid in path.read_text().split())
    return found
