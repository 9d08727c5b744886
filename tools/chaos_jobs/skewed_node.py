"""Run `leveret` with a wall clock that is off by the milliseconds in a file, which may change.

    python -m tools.chaos_jobs.skewed_node FILE serve …

The file is read at most ten times a second. The rest of the machine keeps its time.
"""

import sys
import time
from pathlib import Path
from typing import Final

READ_EVERY_NS: Final = 100_000_000


class SkewedTime:
    """The time of the machine, moved by the number in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._machine_ns = time.time_ns
        self._offset_ns = 0
        self._read_after_ns = 0

    def time_ns(self) -> int:
        at_ns = time.monotonic_ns()
        if at_ns >= self._read_after_ns:
            self._read_after_ns = at_ns + READ_EVERY_NS
            self._offset_ns = int(self._path.read_text() or 0) * 1_000_000
        return self._machine_ns() + self._offset_ns


def main() -> None:
    time.time_ns = SkewedTime(Path(sys.argv[1])).time_ns
    sys.argv = ["leveret", *sys.argv[2:]]
    from leveret.cli.main import main as leveret  # late: the clock takes its time at import

    sys.exit(leveret())


if __name__ == "__main__":
    main()
