"""Message bodies that carry their sender, number, lane, due time and checksum.

    body = "sender.number.lane.due_ms.crc32 " filler

Order is kept within a `lane`: messages of one sender and lane arrive as they were sent.
"""

from dataclasses import dataclass
from random import Random
from typing import Final
from zlib import crc32

# Over 16 KiB a body is written without being copied; over 128 KiB it has several frames.
SIZES: Final = (0, *[10, 100, 1000] * 5, 4000, 4000, 20_000, 150_000)


@dataclass(frozen=True, slots=True)
class Label:
    """The fields of a message body."""

    sender: int
    number: int
    lane: int = 0
    due_ms: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.sender, self.number


def encode_body(label: Label, rng: Random) -> bytes:
    filler = rng.randbytes(rng.choice(SIZES))
    values = (label.sender, label.number, label.lane, label.due_ms, crc32(filler))
    return b"%d.%d.%d.%d.%d " % values + filler


def decode_body(body: bytes) -> Label | None:
    """Return the label; None if the body is not as it was sent."""
    head, _, filler = body.partition(b" ")
    try:
        sender, number, lane, due_ms, crc = map(int, head.split(b"."))
    except ValueError:
        return None
    return Label(sender, number, lane, due_ms) if crc32(filler) == crc else None
