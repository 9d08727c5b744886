"""A job on its way to a table: the same bytes in a Redis buffer and in the local log.

    id, 8 bytes, big-endian | the rest as a MessagePack array, in the order of the fields

The id comes first and apart, so that a script in Redis can compare it without decoding.
"""

import struct
from typing import Final

import msgspec

from leveret.errors import CorruptionError

_ID: Final = struct.Struct(">q")
ID_BYTES: Final = _ID.size


class Entry(msgspec.Struct, array_like=True):
    """One job, with the id that it was given."""

    id: int
    namespace: str
    topic: str
    priority: int
    deliver_after_ms: int
    created_ms: int
    idempotency_key: str | None
    fair_key: str | None
    payload: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    return _ID.pack(entry.id) + _encoder.encode(entry)


def decode(data: bytes) -> Entry:
    try:
        entry = _decoder.decode(memoryview(data)[ID_BYTES:])
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"a job in a buffer or log cannot be read: {error}") from error
    if _ID.pack(entry.id) != data[:ID_BYTES]:
        raise CorruptionError("a job in a buffer or log carries two ids")
    return entry


def encode_id(id: int) -> bytes:
    return _ID.pack(id)
