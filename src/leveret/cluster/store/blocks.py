"""Encoding of the files and blocks of the log.

    file      = file_head block*
    file_head = "LEVRAFT" 0x01  version:u32 cluster:u64 node:u64 file:u64 block:u64 salt:u64 crc:u32
    block     = size:u32 number:u64 crc:u32 head_crc:u32 records          20 bytes and the records

Blocks are numbered through all files; `block` is the number of the file's first one. `crc` covers
the records. `head_crc` covers the bytes before it, and starts with the salt, a random number of the
log. So a client cannot publish a message that looks like the head of a block. A search for blocks
after an incomplete one needs to look at each position only once.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_be
from mypy_extensions import i64

from leveret.checksum import crc32
from leveret.cluster.raft.fields import Reader, write_u32, write_u64
from leveret.errors import CorruptionError, NewerFormatError

MAGIC: Final = b"LEVRAFT\x01"
VERSION: Final = 1
FILE_HEAD_BYTES: Final = 56
BLOCK_HEAD_BYTES: Final = 20
_SUMMED_BYTES: Final = 16  # of a block's head
_CRC_MASK: Final = 0x7FFF_FFFF  # sizes and sums alike have 31 bits
_SALT_MASK: Final = 0xFFFF_FFFF


class FileHead:
    """Whose a file is, and its place in the log."""

    def __init__(self, cluster: i64, node: i64, file: i64, block: i64, salt: i64) -> None:
        self.cluster: i64 = cluster
        self.node: i64 = node
        self.file: i64 = file
        self.block: i64 = block  # the number of the first one
        self.salt: i64 = salt


def encode_file_head(head: FileHead) -> bytes:
    writer = BytesWriter()
    writer.write(MAGIC)
    write_u32(writer, VERSION)
    write_u64(writer, head.cluster)
    write_u64(writer, head.node)
    write_u64(writer, head.file)
    write_u64(writer, head.block)
    write_u64(writer, head.salt)
    write_u32(writer, crc32(writer.getvalue()) & _CRC_MASK)
    return writer.getvalue()


def decode_file_head(data: bytes, name: str) -> FileHead:
    if len(data) < FILE_HEAD_BYTES or data[: len(MAGIC)] != MAGIC:
        raise CorruptionError(f"{name} is not a file of a Raft log")
    body = data[: FILE_HEAD_BYTES - 4]
    reader = Reader(data, len(MAGIC), FILE_HEAD_BYTES)
    if crc32(body) & _CRC_MASK != int.from_bytes(data[len(body) : FILE_HEAD_BYTES], "big"):
        raise CorruptionError(f"{name} has a damaged head")
    version = reader.u32()
    if version > VERSION:
        raise NewerFormatError(f"{name} has format {version}; this version reads up to {VERSION}")
    return FileHead(reader.u64(), reader.u64(), reader.u64(), reader.u64(), reader.u64())


def encode_block_head(records: bytes, number: i64, salt: i64) -> bytes:
    writer = BytesWriter()
    write_u32(writer, len(records))
    write_u64(writer, number)
    write_u32(writer, crc32(records) & _CRC_MASK)
    head = writer.getvalue()
    return head + (crc32(head, salt & _SALT_MASK) & _CRC_MASK).to_bytes(4, "big")


def sound_head(data: bytes, at: i64, salt: i64) -> bool:
    """Whether the head of a block of this log stands there."""
    end = at + _SUMMED_BYTES
    if at + BLOCK_HEAD_BYTES > len(data):
        return False
    found = int.from_bytes(data[end : end + 4], "big")
    return crc32(data[at:end], salt & _SALT_MASK) & _CRC_MASK == found


def whole_block(data: bytes, at: i64, number: i64, salt: i64) -> i64:
    """The size of the block of that number at `at`, with its head; 0 if there is no whole one."""
    if not sound_head(data, at, salt):
        return 0
    reader = Reader(data, at, len(data))
    size = reader.u32()
    if reader.u64() != number:
        return 0
    crc = reader.u32()
    begin = at + BLOCK_HEAD_BYTES
    if size > len(data) - begin or crc32(data[begin : begin + size]) & _CRC_MASK != crc:
        return 0
    return BLOCK_HEAD_BYTES + size


def require_torn(data: bytes, at: i64, number: i64, salt: i64, name: str) -> None:
    """Block `number` is not whole: raise unless it is the last that was ever begun.

    A block is begun after the one before it was synced. So the mere head of a later one, whole or
    not, tells that this one had been synced.
    """
    last = number + (len(data) - at) // BLOCK_HEAD_BYTES + 1
    for after in range(at + 1, len(data) - BLOCK_HEAD_BYTES + 1):
        found = read_i64_be(data, after + 4)
        if number < found <= last and sound_head(data, after, salt):
            raise CorruptionError(f"{name} is damaged at {at}: block {found} follows at {after}")


class Block:
    """What is written and synced at once.

    `Files.write` does that, in whatever thread; the sums are made there too. Where the block begins
    a file, the file's head goes before it.
    """

    def __init__(self, number: i64, file: i64, offset: i64, records: bytes) -> None:
        self.number: i64 = number
        self.file: i64 = file
        self.offset: i64 = offset  # of the block, in the file
        self.records = records
        self.salt: i64 = 0
        self.file_head = b""  # not empty: the file is new
        self.removals: list[int] = []  # files that nothing points to, since the block before
        self.dead: list[int] = []  # files that nothing points to once this is synced
        self.must_sync = True  # whatever need not be synced waits for a block that must

    def pieces(self) -> list[bytes]:
        """What is written to the file at `start()`."""
        head = encode_block_head(self.records, self.number, self.salt)
        if self.file_head:
            return [self.file_head, head, self.records]
        return [head, self.records]

    def start(self) -> i64:
        """Where its pieces go in the file."""
        return self.offset - len(self.file_head)

    def records_offset(self) -> i64:
        """Where its records begin in the file."""
        return self.offset + BLOCK_HEAD_BYTES

    def end(self) -> i64:
        return self.offset + BLOCK_HEAD_BYTES + len(self.records)
