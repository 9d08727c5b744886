"""Ctrl+C in a command on Spark: the command ends, and shows nobody's stack.

PySpark answers the signal by a call to Java from inside the call that it interrupts, and Py4J logs
what comes of that. A JVM that is only just starting says at length that nobody waits for it.
"""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PY4J: Final = "java_gateway"  # the module of Py4J that writes to the root logger as well


@contextmanager
def starting() -> Iterator[None]:
    """While Spark starts: an interrupt kills the JVM too, and afterwards is Python's own again."""
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
    """The processes that this one has started; none where the system does not tell."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            found.update(int(pid) for pid in path.read_text().split())
    return found
