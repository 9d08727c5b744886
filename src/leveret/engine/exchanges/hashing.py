"""Numbers from text that are the same in every process, for exchanges that spread messages.

Python's `hash` differs from process to process; a restart must not move keys between queues. All
numbers here are unsigned 32-bit ones, and no product of them reaches 2^63: compiled and interpreted
code agree.
"""

from typing import Final
from zlib import crc32

from mypy_extensions import i64

_MASK: Final = 0xFFFFFFFF
_FACTOR: Final = 0x45D9F3B  # odd, spreads each bit over the upper half
_RANGE: Final = 4294967296.0  # 2^32

assert _FACTOR * _MASK < 1 << 63


def stable_hash(text: str) -> i64:
    """A 32-bit number for a text."""
    return crc32(text.encode("utf-8", "surrogateescape"))


def mix(number: i64) -> i64:
    """A 32-bit number in which every bit depends on every bit of the given one."""
    mixed: i64 = number & _MASK
    mixed = ((mixed >> 16) ^ mixed) * _FACTOR & _MASK
    mixed = ((mixed >> 16) ^ mixed) * _FACTOR & _MASK
    return (mixed >> 16) ^ mixed


def fraction(number: i64) -> float:
    """A 32-bit number as a fraction between 0 and 1, neither of them included."""
    return (float(number) + 0.5) / _RANGE
