"""Write the lines of the log in a thread, so that a full pipe never stops the event loop.

A pipe that no process reads is full after 64 KiB, and the next write to it blocks. Lines wait for
the thread in a queue of at most `WAITING_BYTES_MAX`. When the queue is full, further lines are
dropped and counted. When the pipe accepts lines again, one more line says how many were dropped.

The thread writes to the descriptor, not to `sys.stderr`: a thread that is blocked inside that
object would make the end of the process fail.
"""

import atexit
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

WAITING_BYTES_MAX: Final = 1024 * 1024
END_WITHIN_S: Final = 1.0  # time for the last lines at the end of the process
_FULL_WAIT_MS: Final = 1000  # between two attempts on a descriptor that does not block


class LogWriter:
    """A stream of lines to a descriptor. It has the methods that a logging handler needs."""

    def __init__(self, descriptor: int, dropped_line: Callable[[int], str]) -> None:
        self.dropped = 0  # lines, since the start
        self._descriptor = descriptor
        self._dropped_line = dropped_line  # makes the line that tells of dropped ones
        self._told = 0  # dropped lines that such a line has told of
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_writing = False
        self._changed = threading.Condition()
        thread = threading.Thread(target=self._write_lines, name="leveret-log-lines", daemon=True)
        thread.start()
        atexit.register(self.close)

    def write(self, line: str) -> None:
        """Let the thread write a line, or drop it if too many lines wait."""
        data = line.encode(errors="backslashreplace")
        with self._changed:
            if self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
                self.dropped += 1
                return
            self._lines.append(data)
            self._waiting_bytes += len(data)
            self._changed.notify_all()

    def flush(self) -> None:
        """Do nothing: the thread writes as soon as it can."""

    def close(self) -> None:
        """Wait until all lines are written, but not for long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._is_writing, END_WITHIN_S)

    def _write_lines(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                self._is_writing = True
                lines = list(self._lines)
                self._lines.clear()
                self._waiting_bytes = 0
                dropped = self.dropped
            try:
                self._write(b"".join(lines))
                if dropped != self._told:
                    self._write(self._dropped_line(dropped - self._told).encode())
                    self._told = dropped
            except OSError:  # the reader is gone, or the disk is full
                with self._changed:
                    self.dropped += len(lines)

    def _write(self, data: bytes) -> None:
        """Write everything. Blocks for as long as the descriptor does."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll(_FULL_WAIT_MS)
