"""Ways to corrupt a frame and a conversation.

Everything is drawn from one `random.Random`, so that a seed repeats it exactly. A corrupted frame
always differs from its original. Most are still valid frames, because an invalid one ends the
conversation at its first octet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Final

from tests.compat import wire
from tests.protocol.conversations import CONVERSATIONS, GREETING_FRAMES, STRANGERS, Frames

FRAME_HEAD_BYTES: Final = 7
NUMBERS: Final = (
    0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
    0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF,
)  # fmt: skip
CHANNELS: Final = (0, 1, 2, 3, 2047, 2048, 65535)
TAGS: Final = b"SxbBsuIilLtdfDTFAV" + b"\x00z\xff"
ALL_FRAMES: Final[Frames] = [
    frame for frames in (*CONVERSATIONS.values(), GREETING_FRAMES, STRANGERS) for frame in frames
]


def parts(frame: bytes) -> tuple[int, int, bytes]:
    """Return type, channel and payload of a frame."""
    kind, channel, size = struct.unpack_from("!BHI", frame)
    return kind, channel, frame[FRAME_HEAD_BYTES : FRAME_HEAD_BYTES + size]


def method_id(frame: bytes) -> bytes:
    """Return the ids of class and method; empty if the frame has none."""
    is_method = len(frame) >= FRAME_HEAD_BYTES + 4 and frame[0] == wire.METHOD
    return frame[FRAME_HEAD_BYTES : FRAME_HEAD_BYTES + 4] if is_method else b""


def _place(rng: Random, payload: bytes | bytearray) -> int:
    """Return a position in the payload, mostly after the ids of a method."""
    first = 4 if len(payload) > 4 and rng.random() < 0.9 else 0
    return rng.randrange(first, len(payload)) if payload else 0


def flip_bits(rng: Random, frame: bytes) -> bytes:
    kind, channel, payload = parts(frame)
    data = bytearray(payload or b"\x00")
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[_place(rng, data)] ^= 1 << rng.randrange(8)
    return wire.frame(kind, channel, bytes(data))


def set_octets(rng: Random, frame: bytes) -> bytes:
    kind, channel, payload = parts(frame)
    data = bytearray(payload or b"\x00")
    for _ in range(rng.choice((1, 1, 2, 4))):
        data[_place(rng, data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return wire.frame(kind, channel, bytes(data))


def set_number(rng: Random, frame: bytes) -> bytes:
    """Write an extreme number over two, four or eight octets."""
    kind, channel, payload = parts(frame)
    size = rng.choice((1, 2, 4, 8))
    at = _place(rng, payload)
    number = (rng.choice(NUMBERS) & (1 << 8 * size) - 1).to_bytes(size, "big")
    return wire.frame(kind, channel, payload[:at] + number + payload[at + size :])


def truncate(rng: Random, frame: bytes) -> bytes:
    kind, channel, payload = parts(frame)
    return wire.frame(kind, channel, payload[: _place(rng, payload)])


def extend(rng: Random, frame: bytes) -> bytes:
    kind, channel, payload = parts(frame)
    at = _place(rng, payload)
    return wire.frame(
        kind, channel, payload[:at] + rng.randbytes(rng.randrange(1, 9)) + payload[at:]
    )


def repeat_part(rng: Random, frame: bytes) -> bytes:
    kind, channel, payload = parts(frame)
    at = _place(rng, payload)
    piece = payload[at : at + rng.randrange(1, 40)]
    return wire.frame(kind, channel, payload[:at] + piece * rng.randrange(2, 20) + payload[at:])


def change_tag(rng: Random, frame: bytes) -> bytes:
    """Write another type tag at a possible position of one."""
    kind, channel, payload = parts(frame)
    data = bytearray(payload or b"\x00")
    places = [at for at in range(4, len(data)) if data[at] in TAGS] or [_place(rng, data)]
    data[rng.choice(places)] = rng.choice(TAGS)
    return wire.frame(kind, channel, bytes(data))


def _nested(rng: Random, depth: int) -> bytes:
    """Return a value of nested tables and arrays."""
    value = wire.field_value("bottom")
    for _ in range(depth):
        if rng.random() < 0.5:
            value = b"F" + wire.longstr(wire.shortstr("n") + value)
        else:
            value = b"A" + wire.longstr(value)
    return value


NESTED: Final = [
    _nested(Random(depth), depth) for depth in (1, 10, 60, 63, 64, 65, 66, 100, 300, 1000)
]
NESTED_NAMES: Final = ("n", "x-death", "CC", "x-match", "capabilities")


def nest(rng: Random, frame: bytes) -> bytes:
    """Put a deeply nested table in the place of a table or of any value."""
    kind, channel, payload = parts(frame)
    table = wire.longstr(wire.shortstr(rng.choice(NESTED_NAMES)) + rng.choice(NESTED))
    if kind == wire.HEADER and len(payload) >= 14:
        size = struct.unpack_from("!Q", payload, 4)[0]
        return wire.frame(kind, channel, struct.pack("!HHQH", 60, 0, size, 0x2000) + table)
    if kind == wire.METHOD and payload.endswith(b"\x00\x00\x00\x00"):
        return wire.frame(kind, channel, payload[:-4] + table)
    return wire.frame(kind, channel, payload[: _place(rng, payload)] + table)


def change_length(rng: Random, frame: bytes) -> bytes:
    """Write a size that does not fit the payload."""
    size = len(frame) - FRAME_HEAD_BYTES - 1
    chosen = rng.choice((size - 1, size + 1, size * 2, 0, 131072, 131073, 2**31, 2**32 - 1))
    return frame[:3] + (max(0, chosen)).to_bytes(4, "big") + frame[FRAME_HEAD_BYTES:]


def change_kind(rng: Random, frame: bytes) -> bytes:
    return bytes((rng.choice((0, 1, 2, 3, 4, 8, 9, 65, 255)),)) + frame[1:]


def change_channel(rng: Random, frame: bytes) -> bytes:
    kind, _, payload = parts(frame)
    return wire.frame(kind, rng.choice((*CHANNELS, rng.randrange(65536))), payload)


def change_end(rng: Random, frame: bytes) -> bytes:
    return frame[:-1] + bytes((rng.choice((0, 0xCD, 0xCF, rng.randrange(256))),))


def change_ids(rng: Random, frame: bytes) -> bytes:
    """Put the arguments of one method after the ids of another."""
    kind, channel, payload = parts(frame)
    other = method_id(rng.choice(ALL_FRAMES)) or b"\x00\x3c\x00\x28"
    return wire.frame(kind, channel, other + payload[4:])


def noise(rng: Random, frame: bytes) -> bytes:
    return rng.randbytes(rng.randrange(1, 64))


FRAME_MUTATIONS: Final[tuple[tuple[Callable[[Random, bytes], bytes], int], ...]] = (
    (flip_bits, 8),
    (set_octets, 8),
    (set_number, 8),
    (truncate, 5),
    (extend, 5),
    (repeat_part, 3),
    (change_tag, 6),
    (nest, 4),
    (change_length, 2),
    (change_kind, 2),
    (change_channel, 3),
    (change_end, 1),
    (change_ids, 2),
    (noise, 1),
)
_CHOICES: Final = [mutate for mutate, weight in FRAME_MUTATIONS for _ in range(weight)]


def spoiled(rng: Random, frame: bytes) -> bytes:
    """Return the frame, corrupted in one way."""
    return rng.choice(_CHOICES)(rng, frame)


def disordered(rng: Random, frames: Frames) -> tuple[Frames, set[int]]:
    """Reorder, repeat, drop and insert frames. Return them, and which were moved."""
    made = list(frames)
    touched: set[int] = set()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(made))
        way = rng.randrange(4)
        if way == 0:
            made.insert(at, made[at])
        elif way == 1:
            other = rng.randrange(len(made))
            made[at], made[other] = made[other], made[at]
            touched.add(other)
        elif way == 2 and len(made) > 1:
            made.pop(at)
        else:
            made.insert(at, rng.choice(ALL_FRAMES))
        touched.add(at)
    return made, {at for at in touched if at < len(made)}
