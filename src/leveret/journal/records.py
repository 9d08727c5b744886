"""The byte format of the records of the log.

    record   = kind:u8 size:u32 payload            size counts the payload

    MESSAGE  = copy content                        a message, and its first queue
    COPY     = copy distance:u32                   the same message in a further queue; its MESSAGE
                                                   starts `distance` bytes before, in the same block
    GONE     = queue:u64 (first:u64 last:u64)*     settled messages, as runs of sequence numbers
    RETURNED = queue:u64 seq:u64 returns:u32 failures:u32 due_ms:u64
                                                   a message came back
    MARK     = queue:u64 delivered:i64             messages up to this one may have been delivered;
                                                   -1: none
    BLOCK    = number:u64                          in a checkpoint: the last block before it
    FILES    = (file:u64 size:u64)*                in a checkpoint: the log files older than it
    END      =                                     the node has stopped in order
    DEFINE   = table                               see `leveret.engine.vhosts.definition_records`
    CHUNK    = stream:u64 chunk                    see `leveret.journal.chunks`
    STREAM   = stream:u64 first_offset:u64 segment:u64 at:u64 began_ms:u64 next_offset:u64
               last_ms:u64                         in a checkpoint: where a stream begins and ends
    TRIM     = stream:u64 first_offset:u64         messages before this offset are dropped
    CURSOR   = stream:u64 offset:i64 name          next offset of a named cursor; -1 deletes it
    KEYS     = owner:u64 count:u32 (time_ms:u64){count} (digest:16 octets){count}
                                                   deduplication keys of a queue or exchange
    CAME     = queue:u64 (seq:u64 time_ms:u64)*    messages from `seq` on arrived at `time_ms`
    STAMP    = time_ms:u64 term:u64 block_kind:u8  first in each block: when it was made, and in
                                                   which term of its leader; 0 on a single node
    ROLL     = file:u64 count:u32 (term:u64 first_block:u64){count} members
                                                   second in the first block of a file of a cluster;
                                                   see `leveret.journal.cluster_records`
    MEMBERS  = members                             the nodes of the cluster from this block on
    NOTHING  =                                     makes a block that is not empty

    copy     = queue:u64 seq:u64 expires_ms:u64 due_ms:u64 priority:i32 flags:u8
    content  = address header_size:u32 header body
    address  = keys:u32 shown:u32 exchange:shortstr routing_key:shortstr key:longstr{keys - 1}

Numbers are big-endian. `keys` counts the routing key and the keys from CC and BCC; consumers may
see the first `shown` of them, which leaves out BCC. A record may be longer than shown here. Readers
skip unknown bytes at the end of every record, except for MESSAGE, which ends with the body.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from leveret.errors import CorruptionError

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
CAME: Final = 80  # no single flipped bit turns another kind into this one or the next
STAMP: Final = 98
ROLL: Final = 100  # two bits differ from every other kind; so do two of the next
MEMBERS: Final = 103

RECORD_HEAD_BYTES: Final = 5
COPY_BYTES: Final = 37
KEYS_HEAD_BYTES: Final = 12
KEY_BYTES: Final = 24
STAMP_BYTES: Final = RECORD_HEAD_BYTES + 17

# Kinds of blocks. The Raft core (`leveret.cluster.raft.block`) has the same numbers.
NORMAL_BLOCK: Final = 0
TERM_BLOCK: Final = 1
MEMBERS_BLOCK: Final = 2
ROLL_BLOCK: Final = 3

# A position in the log: file number << OFFSET_BITS | offset of the record in that file.
OFFSET_BITS: Final = 32
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
NOWHERE: Final = -1

# Queue number of a spilled message: it is in the log to save memory, and a restart ignores it.
SPILLED: Final = 0


def write_head(writer: BytesWriter, kind: i64, size: i64) -> None:
    """Write kind and payload size of a record."""
    writer.append(u8(kind))
    write_i32_be(writer, i32(size))


def record_end(data: bytes, at: i64, end: i64) -> i64:
    """Return where the record at `at` ends; raise CorruptionError if that is after `end`."""
    start = at + RECORD_HEAD_BYTES
    if start > end:
        raise CorruptionError("a record is cut short")
    size = i64(read_i32_be(data, at + 1)) & 0xFFFFFFFF
    if size > end - start:
        raise CorruptionError("a record is cut short")
    return start + size


def encode_stamp(time_ms: i64, term: i64, block_kind: i64) -> bytes:
    """Return the record STAMP."""
    writer = BytesWriter()
    write_head(writer, STAMP, STAMP_BYTES - RECORD_HEAD_BYTES)
    write_i64_be(writer, time_ms)
    write_i64_be(writer, term)
    writer.append(u8(block_kind))
    return writer.getvalue()


def write_copy(
    writer: BytesWriter,
    queue: i64,
    seq: i64,
    expires_ms: i64,
    due_ms: i64,
    priority: i64,
    flags: i64,
) -> None:
    """Write the `copy` part of a MESSAGE or COPY record."""
    write_i64_be(writer, queue)
    write_i64_be(writer, seq)
    write_i64_be(writer, expires_ms)
    write_i64_be(writer, due_ms)
    write_i32_be(writer, i32(priority))
    writer.append(u8(flags & 0xFF))
