"""Hashes that are the same in every process, for exchanges that spread messages.

Python's `hash` differs between processes, and a restart must not move keys between queues. All
numbers here are unsigned 32-bit numbers, and no product reaches 2^63: compiled and interpreted
code give the same results.
"""

from typing import Final
from zlib import crc32

from mypy_extensions import i64

_MASK: Final = 0xFFFFFFFF
_FACTOR: Final = 0x45D9F3B  # odd, spreads each bit over the upper half
_RANGE: Final = 4294967296.0  # 2^32
_MURMUR_SEED: Final = 104_729

assert _FACTOR * _MASK < 1 << 63


def stable_hash(text: str) -> i64:
    """Return a 32-bit hash of a text."""
    return crc32(text.encode("utf-8", "surrogateescape"))


def mix(number: i64) -> i64:
    """Return a 32-bit number in which every bit depends on every bit of the input."""
    mixed: i64 = number & _MASK
    mixed = ((mixed >> 16) ^ mixed) * _FACTOR & _MASK
    mixed = ((mixed >> 16) ^ mixed) * _FACTOR & _MASK
    return (mixed >> 16) ^ mixed


def fraction(number: i64) -> float:
    """Map a 32-bit number to a fraction between 0 and 1, both excluded."""
    return (float(number) + 0.5) / _RANGE


def murmur3(octets: bytes) -> i64:
    """Return the 32-bit MurmurHash3, with the seed of RabbitMQ's stream clients."""
    size: i64 = len(octets)
    mixed: i64 = _MURMUR_SEED
    at: i64 = 0
    while size - at >= 4:
        word = _word(octets, at, 4)
        mixed = _rotate(mixed ^ _scramble(word), 13)
        mixed = _times(mixed, 5) + 0xE6546B64 & _MASK
        at += 4
    if at < size:
        mixed ^= _scramble(_word(octets, at, size - at))
    mixed ^= size & _MASK
    mixed = _times(mixed ^ (mixed >> 16), 0x85EBCA6B)
    mixed = _times(mixed ^ (mixed >> 13), 0xC2B2AE35)
    return mixed ^ (mixed >> 16)


def _word(octets: bytes, at: i64, count: i64) -> i64:
    """Return up to four octets as a little-endian number."""
    word: i64 = 0
    index = count - 1
    while index >= 0:
        word = word << 8 | i64(octets[at + index])
        index -= 1
    return word


def _scramble(word: i64) -> i64:
    return _times(_rotate(_times(word, 0xCC9E2D51), 15), 0x1B873593)


def _rotate(number: i64, bits: i64) -> i64:
    return (number << bits | number >> (32 - bits)) & _MASK


def _times(a: i64, b: i64) -> i64:
    """Return the lower 32 bits of a product, without an intermediate value of 2^63 or more."""
    return ((a & 0xFFFF) * b + (((a >> 16) * b & 0xFFFF) << 16)) & _MASK
