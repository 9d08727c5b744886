"""What broker and worker say to each other about one read, over a socket of its own.

    frame = kind:u8 size:u32 payload          numbers are little-endian

    broker to worker                          worker to broker
    R  the request, JSON                      S  it begins: nothing; or JSON, why it does not
    C  a chunk, where there are no files      D  bytes of the answer
    N  before a chunk of a queue: its rows    F  JSON, why it breaks off
    E  no more chunks of a queue              E  the answer is complete

An end of the socket without E is a broken read, whoever broke it.
"""

import json
import struct
from typing import Final

REQUEST: Final = ord("R")
CHUNK: Final = ord("C")
NUMBERS: Final = ord("N")
STATUS: Final = ord("S")
DATA: Final = ord("D")
FAULT: Final = ord("F")
END: Final = ord("E")

HEAD: Final = struct.Struct("<BI")
NOTE_BYTES_MAX: Final = 16 * 1024 * 1024  # of a request, a status or a fault

# Why a read fails, as S and F say it.
GONE: Final = "gone"  # retention has passed the range
DAMAGED: Final = "damaged"  # a chunk is not what was written
MISSING: Final = "missing"  # pyarrow is not installed
FAILED: Final = "failed"  # anything else


def frame(kind: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(payload)) + payload


def note_frame(kind: int, why: str, reason: str) -> bytes:
    """A frame that says why a read fails."""
    return frame(kind, json.dumps({"why": why, "reason": reason}).encode())


def decode_note(data: bytes) -> tuple[str, str]:
    """The two parts of a note."""
    note = json.loads(data)
    return note["why"], note["reason"]
