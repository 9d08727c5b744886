"""Runs every path between two marks: `python -m tools.guard.driver`, started under valgrind.

A mark is a call of getpgid, which nothing else here makes: callgrind writes out its counts and
begins anew when it is entered. So the counts come in pairs: what was prepared, what was done.
"""

import gc
import os

from tools.guard.paths import PATHS


def main() -> None:
    """Prepare, mark, run, mark, for each path."""
    gc.disable()  # when it runs depends on everything that ran before
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
