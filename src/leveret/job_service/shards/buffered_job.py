"""A job on its way to a table. It has the same bytes in a Redis buffer and in the local log.

    id, 8 bytes, big-endian | the rest as a MessagePack array, in the order of the fields

The id comes first, so that a script in Redis can compare it without decoding.
"""

import struct
from typing import Final

import msgspec

from leveret.decode_errors import DECODE_ERRORS
from leveret.errors import CorruptionError

_ID: Final = struct.Struct(">q")
ID_BYTES: Final = _ID.size


class BufferedJob(msgspec.Struct, array_like=True):
    """One job with its id."""

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
_decoder: Final = msgspec.msgpack.Decoder(BufferedJob)


def encode_job(job: BufferedJob) -> bytes:
    return _ID.pack(job.id) + _encoder.encode(job)


def decode_job(data: bytes) -> BufferedJob:
    try:
        job = _decoder.decode(memoryview(data)[ID_BYTES:])
    except DECODE_ERRORS as error:
        raise CorruptionError(f"a job in a buffer or log cannot be read: {error}") from error
    if _ID.pack(job.id) != data[:ID_BYTES]:
        raise CorruptionError("a job in a buffer or log has two different ids")
    return job


def encode_id(id: int) -> bytes:
    return _ID.pack(id)
