"""Encoding of messages: frames that carry messages of any groups between two nodes.

    frame   = size:u32 version:u8 source:u64 target:u64 count:u32 message*
    message = kind:u8 group:u64 term:u64 field:u64* tail
    tail    = count:u32 entry*         of APPEND, see `leveret.cluster.raft.entry`
            | size:u32 data            of SNAPSHOT
            | nothing

`size` counts the bytes after it. The table `FIELDS` says which of the fields index, log_term,
commit, hint and context a kind has, in this order. docs/formats/raft.md draws it. Decoding any
bytes returns messages, or raises `FrameError` or `FieldSyntaxError`.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.raft.entry import ENTRY_HEAD_BYTES, NOBODY, Entry, read_entry, write_entry
from leveret.cluster.raft.fields import (
    U64_MAX,
    Reader,
    patch_u32,
    write_bytes,
    write_u32,
    write_u64,
)
from leveret.cluster.raft.messages import (
    APPEND,
    KIND_MAX,
    SNAPSHOT,
    Message,
)
from leveret.errors import FieldSyntaxError, FrameError

VERSION: Final = 1
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
SIZE_BYTES: Final = 4
HEAD_BYTES: Final = 21  # size of a frame head, after the frame's size
MESSAGE_HEAD_BYTES: Final = 17
_COUNT_AT: Final = SIZE_BYTES + HEAD_BYTES - 4  # position of the count in a frame

_INDEX: Final = 1
_LOG_TERM: Final = 2
_COMMIT: Final = 4
_HINT: Final = 8
_CONTEXT: Final = 16

# Which fields a message has, by kind.
FIELDS: Final = (
    0,
    _INDEX | _LOG_TERM | _CONTEXT,  # PRE_VOTE
    _CONTEXT,
    _INDEX | _LOG_TERM | _CONTEXT,  # VOTE
    _CONTEXT,
    _INDEX | _LOG_TERM | _COMMIT,  # APPEND
    _INDEX,
    _INDEX | _LOG_TERM | _HINT,  # APPEND_REFUSAL
    _COMMIT | _CONTEXT,  # HEARTBEAT
    _CONTEXT,
    _INDEX | _LOG_TERM | _COMMIT | _HINT,  # SNAPSHOT
    _INDEX | _LOG_TERM | _HINT,
    0,  # TIMEOUT_NOW
    _CONTEXT,  # READ
    _INDEX | _CONTEXT,
    _COMMIT,
    _INDEX | _LOG_TERM | _HINT | _CONTEXT,  # SLEEP
    _HINT | _CONTEXT,
    0,  # WAKE
    _INDEX | _CONTEXT,  # NODE_HEARTBEAT
)


def encode_frame(source: i64, target: i64, messages: list[Message]) -> bytes:
    """Encode messages from one node to another as one frame."""
    frames = encode_frames(source, target, messages, FRAME_BYTES_MAX)
    assert len(frames) == 1
    return frames[0]


def encode_frames(source: i64, target: i64, messages: list[Message], full: i64) -> list[bytes]:
    """Encode messages as few frames. A frame of `full` bytes or more gets no more messages."""
    frames: list[bytes] = []
    writer = _begin_frame(source, target)
    count: i64 = 0
    for message in messages:
        assert message.source == source
        assert message.target == target
        if count and len(writer) >= full:
            frames.append(_end_frame(writer, count))
            writer = _begin_frame(source, target)
            count = 0
        _write_message(writer, message)
        count += 1
    frames.append(_end_frame(writer, count))
    return frames


def _begin_frame(source: i64, target: i64) -> BytesWriter:
    writer = BytesWriter()
    write_u32(writer, 0)
    writer.append(VERSION)
    write_u64(writer, source)
    write_u64(writer, target)
    write_u32(writer, 0)
    return writer


def _end_frame(writer: BytesWriter, count: i64) -> bytes:
    patch_u32(writer, _COUNT_AT, count)
    patch_u32(writer, 0, len(writer) - SIZE_BYTES)
    return writer.getvalue()


def _write_message(writer: BytesWriter, message: Message) -> None:
    kind = message.kind
    fields: i64 = FIELDS[kind]
    writer.append(kind)
    write_u64(writer, message.group)
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
        write_u32(writer, len(message.entries))
        for entry in message.entries:
            write_entry(writer, entry)
    elif kind == SNAPSHOT:
        write_bytes(writer, message.data)


def frame_size(data: bytes, at: i64) -> i64:
    """Return the size of the frame at `at`, including its size field; 0 if that has not arrived."""
    if len(data) - at < SIZE_BYTES:
        return 0
    reader = Reader(data, at, len(data))
    size = reader.u32()
    if size < HEAD_BYTES or size > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {size} bytes")
    return SIZE_BYTES + size


def decode_frame(data: bytes) -> list[Message]:
    """Decode the messages of one whole frame."""
    if not data or frame_size(data, 0) != len(data):
        raise FrameError(f"a frame of another size than {len(data)} bytes")
    reader = Reader(data, SIZE_BYTES, len(data))
    version = reader.u8()
    if version != VERSION:
        raise FrameError(f"a frame of version {version}, not {VERSION}")
    source = reader.u64()
    target = reader.u64()
    if source == NOBODY or target == NOBODY:
        raise FieldSyntaxError("a frame from nobody or for nobody")
    count = reader.count(MESSAGE_HEAD_BYTES)
    messages = [_read_message(reader, source, target) for _ in range(count)]
    reader.require_end()
    return messages


def _read_message(reader: Reader, source: i64, target: i64) -> Message:
    kind = reader.u8()
    if kind < 1 or kind > KIND_MAX:
        raise FieldSyntaxError(f"a message of kind {kind}")
    fields: i64 = FIELDS[kind]
    group = reader.u64()
    message = Message(kind, source, target, group, reader.u64())
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
        message.entries = _read_entries(reader, message)
    elif kind == SNAPSHOT:
        message.data = reader.sized()
    return message


def _read_entries(reader: Reader, message: Message) -> list[Entry]:
    """Decode entries that follow `index`, and check that their terms can stand in this order."""
    count = reader.count(ENTRY_HEAD_BYTES)
    index = message.index
    if index > U64_MAX - count:
        raise FieldSyntaxError(f"entries after {index}")
    term = message.log_term
    entries: list[Entry] = []
    for _ in range(count):
        index += 1
        entry = read_entry(reader, index)
        if entry.term < term or entry.term > message.term:
            raise FieldSyntaxError(
                f"term {entry.term} after {term}, in a message of {message.term}"
            )
        term = entry.term
        entries.append(entry)
    return entries
