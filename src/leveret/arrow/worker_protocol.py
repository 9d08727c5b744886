"""The protocol between broker and worker: frames about one read, over its own socket.

    frame = kind:u8 size:u32 payload          numbers are little-endian

    broker to worker                          worker to broker
    R  the request, JSON                      S  status: empty if the read begins, or a JSON fault
    C  a chunk, if there are no files         D  data: bytes of the answer
    N  numbers and times of the next chunk,   F  a JSON fault: the read breaks off
       which holds messages of a queue
    E  end of the chunks of a queue           E  end: the answer is complete

A socket that ends without E is a broken read, whichever side closed it.
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
NOTE_BYTES_MAX: Final = 16 * 1024 * 1024  # size of a request, a status or a fault

# Kinds of faults in S and F frames.
GONE: Final = "gone"  # retention has removed the range
DAMAGED: Final = "damaged"  # a chunk fails its check
MISSING: Final = "missing"  # pyarrow is not installed
FAILED: Final = "failed"  # any other fault


def frame(kind: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(payload)) + payload


def fault_frame(kind: int, why: str, reason: str) -> bytes:
    """Return a frame that says why a read fails."""
    return frame(kind, json.dumps({"why": why, "reason": reason}).encode())


def decode_fault(data: bytes) -> tuple[str, str]:
    """Return kind and reason of a fault."""
    note = json.loads(data)
    return note["why"], note["reason"]
