"""Decoding of message records. `leveret.journal.records` defines the format."""

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.engine.message import Address, Message, read_address, require_bytes
from leveret.errors import CorruptionError
from leveret.journal.records import COPY_BYTES


class CopyFields:
    """The fields of a message record that belong to one queue."""

    def __init__(self, payload: bytes) -> None:
        if len(payload) < COPY_BYTES:
            raise CorruptionError("a message record is cut short")
        self.queue: i64 = read_i64_be(payload, 0)
        self.seq: i64 = read_i64_be(payload, 8)
        self.expires_ms: i64 = read_i64_be(payload, 16)
        self.due_ms: i64 = read_i64_be(payload, 24)
        self.priority: i64 = i64(read_i32_be(payload, 32))
        self.flags: i64 = payload[36]


def distance_to_message(payload: bytes) -> int:
    """Return the distance in bytes from a COPY record back to its MESSAGE record."""
    if len(payload) < COPY_BYTES + 4:
        raise CorruptionError("a copy record is cut short")
    return i64(read_i32_be(payload, COPY_BYTES)) & 0xFFFFFFFF


def make_message(copy: CopyFields, payload: bytes) -> Message:
    """Return the message of a copy, in no queue. `payload` is that of its MESSAGE record."""
    address, at = read_address(payload, COPY_BYTES)
    return fill_message(copy, payload, 0, address, at)


def fill_message(copy: CopyFields, payload: bytes, slot: i64, address: Address, at: i64) -> Message:
    """Return the message of a copy whose address is already decoded and ends at `at`."""
    require_bytes(payload, at, 4)
    header_size = i64(read_i32_be(payload, at)) & 0xFFFFFFFF
    require_bytes(payload, at + 4, header_size)
    body_at = at + 4 + header_size
    header = payload[at + 4 : body_at]
    body = payload[body_at:]
    return Message(
        address, header, body, copy.seq, copy.expires_ms, copy.priority, copy.flags, slot
    )
