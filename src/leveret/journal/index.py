"""The index of a log file: the positions of its messages, without their bodies.

    index = entry*
    entry = queue:u32 offset:u32 seq:u64 priority:i32 size:u32 due_ms:u64      32 bytes

`size` is the size of the body. `due_ms` is 0 if the message is not scheduled. Entries are in the
order of the file. A start of the node reads the index of a full file instead of the file.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

ENTRY_BYTES: Final = 32


def signed32(value: i64) -> i32:
    """Return the signed number with the same 32 bits, for the writers of `librt`."""
    assert 0 <= value <= 0xFFFFFFFF
    return i32(value - 0x100000000 if value > 0x7FFFFFFF else value)


def write_entry(
    writer: BytesWriter,
    queue: i64,
    offset: i64,
    seq: i64,
    priority: i64,
    size: i64,
    due_ms: i64,
) -> None:
    write_i32_be(writer, signed32(queue))
    write_i32_be(writer, signed32(offset))
    write_i64_be(writer, seq)
    write_i32_be(writer, i32(priority))
    write_i32_be(writer, signed32(size))
    write_i64_be(writer, due_ms)
