"""Measure how long a sync takes while a load runs. Results of persistent loads depend on it.

A thread repeats a small write and an fdatasync, in a file beside the brokers' directories.
"""

import os
import threading
import time
from pathlib import Path
from statistics import median
from typing import Final, Self

EVERY_S: Final = 0.05
WRITE_BYTES: Final = 512


class SyncProbe:
    """Measures syncs until the end of a `with` block."""

    def __init__(self, directory: Path, *, active: bool = True) -> None:
        self._path = directory / "sync.probe"
        self._active = active
        self._over = threading.Event()
        self._times_us: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        if self._active:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._active:
            self._over.set()
            self._thread.join()
            self._path.unlink(missing_ok=True)

    def p50_us(self) -> float:
        """Return the median so far; 0 without a measurement."""
        return median(self._times_us) if self._times_us else 0.0

    def _run(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while True:
                started_s = time.perf_counter()
                os.write(descriptor, b"x" * WRITE_BYTES)
                os.fdatasync(descriptor)
                self._times_us.append((time.perf_counter() - started_s) * 1e6)
                if self._over.wait(EVERY_S):
                    return
        finally:
            os.close(descriptor)
