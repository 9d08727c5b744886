"""The records of the log, as bytes.

    record   = kind:u8 size:u32 payload            size counts the payload

    MESSAGE  = copy content                        a message, and its first queue
    COPY     = copy distance:u32                   the same message in a further queue; its MESSAGE
                                                   starts `distance` bytes before, in the same block
    GONE     = queue:u64 (first:u64 last:u64)*     messages that are done with, by sequence number
    RETURNED = queue:u64 seq:u64 returns:u32 failures:u32 due_ms:u64
    MARK     = queue:u64 delivered:u64             all up to this one may have been delivered
    BLOCK    = number:u64                          in a checkpoint: the last block before it
    FILES    = (file:u64 size:u64)*                in a checkpoint: the log files older than it
    END      =                                     the node has stopped as it should
    DEFINE   = table                               see `leveret.engine.vhosts.definition_records`
    CHUNK    = stream:u64 chunk                    see `leveret.journal.chunks`
    STREAM   = stream:u64 first_offset:u64 segment:u64 at:u64 began_ms:u64 next_offset:u64
               last_ms:u64                         in a checkpoint: where a stream begins and ends
    TRIM     = stream:u64 first_offset:u64         what comes before is forgotten
    CURSOR   = stream:u64 offset:i64 name          the next offset of a named reader; -1 ends it
    KEYS     = owner:u64 count:u32 (time_ms:u64){count} (digest:16 octets){count}
                                                   keys that a queue or an exchange remembers
    CAME     = queue:u64 (seq:u64 time_ms:u64)*    messages from a number on came at a time
    NOTHING  =                                     only so that a block is not empty

    copy     = queue:u64 seq:u64 expires_ms:u64 due_ms:u64 priority:i32 flags:u8
    content  = address header_size:u32 header body
    address  = keys:u32 shown:u32 exchange:shortstr routing_key:shortstr key:longstr*

Numbers are big-endian. `keys` counts all routing keys, `shown` those that may be shown (CC, not
BCC). A record may be longer than drawn here: readers skip what they do not know at the end of every
record but MESSAGE, whose end is the body.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

NOTHING: Final = 0
MESSAGE: Final = 1
COPY: Final = 2
GONE: Final = 3
RETURNED: Final = 4
MARK: Final = 5
DEFINE: Final = 6
BLOCK: Final = 7
END: Final = 8
CHUNK: Final = 9
STREAM: Final = 10
CURSOR: Final = 11
TRIM: Final = 12
KEYS: Final = 13
FILES: Final = 32
CAME: Final = 80  # far from all others: a turned bit makes none of them into this one

RECORD_HEAD_BYTES: Final = 5
COPY_BYTES: Final = 37
KEYS_HEAD_BYTES: Final = 12
KEY_BYTES: Final = 24

# A position in the log: file number and offset of the record in that file.
OFFSET_BITS: Final = 32
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
NOWHERE: Final = -1

# The queue of a message that is in the log only to be out of memory: no start looks at it again.
SPILLED: Final = 0


def write_head(writer: BytesWriter, kind: i64, size: i64) -> None:
    writer.append(kind)
    write_i32_be(writer, i32(size))


def write_copy(
    writer: BytesWriter,
    queue: i64,
    seq: i64,
    expires_ms: i64,
    due_ms: i64,
    priority: i64,
    flags: i64,
) -> None:
    write_i64_be(writer, queue)
    write_i64_be(writer, seq)
    write_i64_be(writer, expires_ms)
    write_i64_be(writer, due_ms)
    write_i32_be(writer, i32(priority))
    writer.append(flags & 0xFF)
