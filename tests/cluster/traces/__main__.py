"""Runs all traces, or the named ones; `--write` keeps their current output."""

import sys

from tests.cluster.traces.script import difference, names, write


def main(words: list[str]) -> int:
    is_writing = "--write" in words
    chosen = [word for word in words if not word.startswith("-")] or names()
    failed = 0
    for name in chosen:
        if is_writing:
            write(name)
        found = difference(name)
        if found:
            failed += 1
            print(f"{name} FAILED\n{found}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
