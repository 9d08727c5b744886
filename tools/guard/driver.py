"""Runs every path between two marks: `python -m tools.guard.driver`, started under valgrind.

A mark is a call of getpgid, which nothing else here calls. Callgrind writes out its counts and
starts again from 0 whenever getpgid is entered. So the counts come in pairs: the preparation, then
the path.
"""

import gc
import os

from tools.guard.paths import PATHS


def main() -> None:
    """Prepare and run each path, with a mark before and after the run."""
    gc.disable()  # its runs would depend on everything before
    for make in PATHS.values():
        path = make()
        _mark()
        path.run()
        _mark()
        path.check()


def _mark() -> None:
    os.getpgid(0)


if __name__ == "__main__":
    main()
