"""Positions in the log, and how much of each file is still in use.

A position is one number: the file and the offset in it. `Space` counts the size of each file and
its referenced bytes. A file without referenced bytes can be removed.
"""

from typing import Final

from mypy_extensions import i64

OFFSET_BITS: Final = 36  # 64 GiB; leaves 2**26 files
_OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1


def place(file: i64, offset: i64) -> i64:
    assert 0 <= offset <= _OFFSET_MASK
    return file << OFFSET_BITS | offset


def file_of(at: i64) -> i64:
    return at >> OFFSET_BITS


def offset_of(at: i64) -> i64:
    return at & _OFFSET_MASK


class Space:
    """The files of the log. Invariant: 0 <= live <= size for each of them."""

    def __init__(self) -> None:
        self.size: dict[int, int] = {}  # in bytes, by file; the last one grows
        self.live: dict[int, int] = {}  # bytes that are pointed to

    def add_file(self, file: i64, size: i64) -> None:
        self.size[file] = size
        if file not in self.live:
            self.live[file] = 0

    def forget(self, file: i64) -> None:
        del self.size[file]
        del self.live[file]

    def gain(self, file: i64, size: i64) -> None:
        self.live[file] = self.live.get(file, 0) + size

    def lose(self, file: i64, size: i64) -> None:
        left = self.live[file] - size
        assert left >= 0
        self.live[file] = left

    def dead(self, current: i64) -> list[int]:
        """Files before the current one that nobody points to."""
        return [file for file, live in self.live.items() if live == 0 and file != current]

    def live_bytes(self) -> i64:
        return sum(self.live.values())

    def total_bytes(self) -> i64:
        return sum(self.size.values())
