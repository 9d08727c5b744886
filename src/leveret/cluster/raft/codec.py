"""Encoding of messages: frames that carry messages between two nodes.

    frame   = size:u32 kind:u8 source:u32 target:u32 count:u32 heads_bytes:u32 message* data
    message = kind:u8 term:u64 field:u64* tail
    tail    = count:u32 block*                              of APPEND
    block   = term:u64 kind:u8 size:u32 [members]           members of a MEMBERS block
    members = size:u32 bytes                                see `leveret.cluster.raft.members`

`size` counts the bytes after it, `heads_bytes` all messages. The data of all blocks follows them in
one piece. So a sender passes the bytes of large blocks on as they are, and a receiver copies them
out of its buffer once. The table `FIELDS` says which of the fields index, log_term, commit, hint
and context a kind has, in this order. docs/formats/raft.md draws it. Decoding any bytes returns
messages, or raises `FrameError` or `FieldSyntaxError`.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from leveret.cluster.raft.block import BLOCK_BYTES_MAX, BLOCK_HEAD_BYTES, MEMBERS, Block
from leveret.cluster.raft.block import KIND_MAX as BLOCK_KIND_MAX
from leveret.cluster.raft.fields import (
    U64_MAX,
    Reader,
    write_bytes,
    write_u32,
    write_u64,
)
from leveret.cluster.raft.members import (
    NOBODY,
    NUMBER_MAX,
    Members,
    decode_members,
    encode_members,
)
from leveret.cluster.raft.messages import APPEND, KIND_MAX, Message
from leveret.errors import FieldSyntaxError, FrameError

MESSAGES: Final = 1  # the kind of these frames; `leveret.cluster.link` has others
# Room for the largest block and for a frame that was nearly full before it.
FRAME_BYTES_MAX: Final = BLOCK_BYTES_MAX + 16 * 1024 * 1024
SIZE_BYTES: Final = 4
HEAD_BYTES: Final = 17  # size of a frame head, after the frame's size
MESSAGE_HEAD_BYTES: Final = 9
# Smaller data is joined with its neighbours: copying it is cheaper than one more piece.
PIECE_BYTES_MIN: Final = 4096

_INDEX: Final = 1
_LOG_TERM: Final = 2
_COMMIT: Final = 4
_HINT: Final = 8
_CONTEXT: Final = 16

# Which fields a message has, by kind.
FIELDS: Final = (
    0,
    _INDEX | _LOG_TERM,  # PRE_VOTE
    _CONTEXT,
    _INDEX | _LOG_TERM | _CONTEXT,  # VOTE
    _CONTEXT,
    _INDEX | _LOG_TERM | _COMMIT,  # APPEND
    _INDEX | _CONTEXT,
    _INDEX | _LOG_TERM | _COMMIT | _HINT | _CONTEXT,  # APPEND_REFUSAL
    _INDEX | _COMMIT | _CONTEXT,  # HEARTBEAT
    _HINT | _CONTEXT,
    0,  # TIMEOUT_NOW
    _COMMIT,
)


def encode_frames(
    source: i64, target: i64, messages: list[Message], full: i64
) -> list[list[bytes]]:
    """Encode messages as few frames, each as pieces to be sent one behind the other.

    A frame of `full` bytes or more gets no more messages. Large data of blocks is not copied.
    """
    frames: list[list[bytes]] = []
    at: i64 = 0
    while at < len(messages) or not frames:
        heads = BytesWriter()
        data: list[bytes] = []
        data_bytes: i64 = 0
        first = at
        while at < len(messages) and (at == first or len(heads) + data_bytes < full):
            message = messages[at]
            assert message.source == source
            assert message.target == target
            _write_message(heads, message)
            for block in message.blocks:
                data.append(block.data)
                data_bytes += len(block.data)
            at += 1
        writer = BytesWriter()
        write_u32(writer, HEAD_BYTES + len(heads) + data_bytes)
        writer.append(MESSAGES)
        write_u32(writer, source)
        write_u32(writer, target)
        write_u32(writer, at - first)
        write_u32(writer, len(heads))
        writer.write(heads.getvalue())
        frames.append(_join_small(writer.getvalue(), data))
    return frames


def _join_small(head: bytes, data: list[bytes]) -> list[bytes]:
    pieces: list[bytes] = []
    run = [head]
    for piece in data:
        if len(piece) < PIECE_BYTES_MIN:
            run.append(piece)
            continue
        if run:
            pieces.append(b"".join(run))
            run = []
        pieces.append(piece)
    if run:
        pieces.append(b"".join(run))
    return pieces


def _write_message(writer: BytesWriter, message: Message) -> None:
    kind = message.kind
    fields: i64 = FIELDS[kind]
    writer.append(u8(kind))
    write_u64(writer, message.term)
    if fields & _INDEX:
        write_u64(writer, message.index)
    if fields & _LOG_TERM:
        write_u64(writer, message.log_term)
    if fields & _COMMIT:
        write_u64(writer, message.commit)
    if fields & _HINT:
        write_u64(writer, message.hint)
    if fields & _CONTEXT:
        write_u64(writer, message.context)
    if kind == APPEND:
        write_u32(writer, len(message.blocks))
        for block in message.blocks:
            _write_block(writer, block)


def _write_block(writer: BytesWriter, block: Block) -> None:
    data = block.data
    assert len(data) <= BLOCK_BYTES_MAX
    write_u64(writer, block.term)
    writer.append(u8(block.kind))
    write_u32(writer, len(data))
    if block.members is not None:
        write_bytes(writer, encode_members(block.members))


def decode_messages(frame: memoryview) -> list[Message]:
    """Decode the messages of one whole frame, without its size. The data of blocks is copied."""
    if len(frame) < HEAD_BYTES:
        raise FrameError(f"a frame of {len(frame)} bytes")
    head = Reader(bytes(frame[:HEAD_BYTES]), 0, HEAD_BYTES)
    kind = head.u8()
    if kind != MESSAGES:
        raise FrameError(f"a frame of kind {kind}, not {MESSAGES}")
    source = head.u32()
    target = head.u32()
    if source == NOBODY or target == NOBODY or max(source, target) > NUMBER_MAX:
        raise FieldSyntaxError(f"a frame from {source} for {target}")
    count = head.u32()
    end = HEAD_BYTES + head.u32()
    if end > len(frame) or count * MESSAGE_HEAD_BYTES > end - HEAD_BYTES:
        raise FieldSyntaxError(f"{count} messages cannot be in {len(frame)} bytes")
    heads = bytes(frame[HEAD_BYTES:end])
    reader = Reader(heads, 0, len(heads))
    data = _Data(frame, end)
    messages = [_read_message(reader, data, source, target) for _ in range(count)]
    reader.require_end()
    data.require_end()
    return messages


class _Data:
    """The data of all blocks of a frame, taken one after the other."""

    def __init__(self, frame: memoryview, at: i64) -> None:
        self.frame = frame
        self.at: i64 = at
        self.end: i64 = len(frame)

    def take(self, size: i64) -> bytes:
        at = self.at
        if size > BLOCK_BYTES_MAX:
            raise FieldSyntaxError(f"{size} bytes where {BLOCK_BYTES_MAX} are allowed")
        if size > self.end - at:
            raise FieldSyntaxError(f"{size} bytes of data wanted, {self.end - at} left")
        self.at = at + size
        return bytes(self.frame[at : at + size])

    def require_end(self) -> None:
        if self.at != self.end:
            raise FieldSyntaxError(f"{self.end - self.at} bytes of data too many")


def _read_message(reader: Reader, data: _Data, source: i64, target: i64) -> Message:
    kind = reader.u8()
    if kind < 1 or kind > KIND_MAX:
        raise FieldSyntaxError(f"a message of kind {kind}")
    fields: i64 = FIELDS[kind]
    message = Message(kind, source, target, reader.u64())
    if fields & _INDEX:
        message.index = reader.u64()
    if fields & _LOG_TERM:
        message.log_term = reader.u64()
    if fields & _COMMIT:
        message.commit = reader.u64()
    if fields & _HINT:
        message.hint = reader.u64()
    if fields & _CONTEXT:
        message.context = reader.u64()
    if kind == APPEND:
        message.blocks = _read_blocks(reader, data, message)
    return message


def _read_blocks(reader: Reader, data: _Data, message: Message) -> list[Block]:
    """Decode blocks that follow `index`, and check that their terms can stand in this order."""
    count = reader.count(BLOCK_HEAD_BYTES)
    index = message.index
    if index > U64_MAX - count:
        raise FieldSyntaxError(f"blocks after {index}")
    term = message.log_term
    blocks: list[Block] = []
    for _ in range(count):
        index += 1
        block = _read_block(reader, data, index)
        if block.term < term or block.term > message.term:
            raise FieldSyntaxError(
                f"term {block.term} after {term}, in a message of {message.term}"
            )
        term = block.term
        blocks.append(block)
    return blocks


def _read_block(reader: Reader, data: _Data, index: i64) -> Block:
    term = reader.u64()
    kind = reader.u8()
    if kind > BLOCK_KIND_MAX:
        raise FieldSyntaxError(f"a block of kind {kind}")
    found = data.take(reader.u32())
    members: Members | None = None
    if kind == MEMBERS:
        members = decode_members(reader.sized())
    return Block(index, term, kind, found, members)
