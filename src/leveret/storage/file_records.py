"""Decode the records that concern files, for a follower: FILES, STREAM, TRIM, definitions."""

import struct
from typing import Final

from leveret.errors import LeveretError
from leveret.journal.records import FILES
from leveret.storage.block_records import find_records
from leveret.wire.tables import Table, decode_table

_STREAM: Final = struct.Struct(">6Q")


def listed_files(records: bytes) -> dict[int, int]:
    """Return the older log files that the checkpoint in a ROLL block needs, with their sizes."""
    found: dict[int, int] = {}
    for payload in find_records(records, FILES):
        found.update(dict(struct.iter_unpack(">QQ", payload)))
    return found


def decode_stream(payload: bytes) -> tuple[int, int, int, int, int, int]:
    """Return stream, first offset, segment, end, began_ms and next offset of a STREAM record."""
    stream, first, segment, end, began_ms, next_offset = _STREAM.unpack_from(payload)
    return stream, first, segment, end, began_ms, next_offset


def decode_trim(payload: bytes) -> tuple[int, int]:
    """Return stream and first offset of a TRIM record."""
    return int.from_bytes(payload[:8], "big"), int.from_bytes(payload[8:16], "big")


def decode_queue(payload: bytes) -> tuple[str, int, Table]:
    """Return op, number and arguments of a queue's DEFINE record; no op for other records."""
    try:
        table = decode_table(payload, 4, len(payload))
    except LeveretError:  # the recovery of a leader reports it; a follower needs only streams
        return "", 0, {}
    op, number, arguments = table.get("op"), table.get("id"), table.get("arguments")
    if op is None or op.value not in ("queue", "queue-") or number is None:
        return "", 0, {}
    found = arguments.value if arguments is not None else {}
    assert isinstance(op.value, str)
    assert isinstance(number.value, int)
    return op.value, number.value, found if isinstance(found, dict) else {}
