"""The commands of a replicated queue, as bytes of an entry.

    command   = version:u8 kind:u8 time_ms:u64 payload

    ENQUEUE   = publisher:u64 seq:u64 ttl_ms:u64 body      the body is the rest; ttl_ms 0: none
    ATTACH    = consumer:u64 owner:u64 prefetch:u32
    DETACH    = consumer:u64                               gets no more; keeps what it holds
    SETTLE    = consumer:u64 count:u32 tag:u64*
    RETURN    = consumer:u64 count:u32 tag:u64*
    DISCARD   = consumer:u64 count:u32 tag:u64*
    TIMEOUT   =                                            something is due
    PURGE     =
    CONFIGURE = settings, see `leveret.cluster.machine_state`
    DOWN      = owner:u64                                  the owner and its consumers are gone

Consumer 0 settles dead letters that have arrived elsewhere, by their indexes instead of tags. The
leader stamps the time, so that all nodes see the same time. `seq` numbers the messages of one
publisher, from 1 on without gaps. Publisher 0 means no publisher: its messages are never
duplicates.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.machine_state import Settings, read_settings, write_settings
from leveret.cluster.raft.fields import Reader, write_numbers, write_u32, write_u64
from leveret.errors import FieldSyntaxError, NewerFormatError

COMMAND_VERSION: Final = 1

ENQUEUE: Final = 1
ATTACH: Final = 2
DETACH: Final = 3
SETTLE: Final = 4
RETURN: Final = 5
DISCARD: Final = 6
TIMEOUT: Final = 7
PURGE: Final = 8
CONFIGURE: Final = 9
DOWN: Final = 10

# Of an ENQUEUE, before the body: version, kind, time, publisher, seq, ttl
BODY_AT: Final = 34


class Command:
    """One command; fields that its kind has no use for are 0 or empty."""

    def __init__(self, kind: i64, time_ms: i64) -> None:
        self.kind: i64 = kind
        self.time_ms: i64 = time_ms
        self.actor: i64 = 0  # the publisher, consumer or owner
        self.seq: i64 = 0
        self.ttl_ms: i64 = 0
        self.owner: i64 = 0
        self.prefetch: i64 = 0
        self.size_bytes: i64 = 0  # of the body
        self.numbers: list[int] = []  # tags; of dead letters, indexes
        self.settings: Settings | None = None


def _begin(kind: i64, time_ms: i64) -> BytesWriter:
    writer = BytesWriter()
    writer.append(COMMAND_VERSION)
    writer.append(kind)
    write_u64(writer, time_ms)
    return writer


def encode_enqueue(time_ms: i64, publisher: i64, seq: i64, ttl_ms: i64, body: bytes) -> bytes:
    writer = _begin(ENQUEUE, time_ms)
    write_u64(writer, publisher)
    write_u64(writer, seq)
    write_u64(writer, ttl_ms)
    writer.write(body)
    return writer.getvalue()


def encode_attach(time_ms: i64, consumer: i64, owner: i64, prefetch: i64) -> bytes:
    writer = _begin(ATTACH, time_ms)
    write_u64(writer, consumer)
    write_u64(writer, owner)
    write_u32(writer, prefetch)
    return writer.getvalue()


def encode_of(kind: i64, time_ms: i64, actor: i64) -> bytes:
    """DETACH of a consumer, or DOWN of an owner."""
    assert kind in (DETACH, DOWN)
    writer = _begin(kind, time_ms)
    write_u64(writer, actor)
    return writer.getvalue()


def encode_bare(kind: i64, time_ms: i64) -> bytes:
    """TIMEOUT or PURGE."""
    assert kind in (TIMEOUT, PURGE)
    return _begin(kind, time_ms).getvalue()


def encode_verdict(kind: i64, time_ms: i64, consumer: i64, tags: list[int]) -> bytes:
    """SETTLE, RETURN or DISCARD of what a consumer holds."""
    assert kind in (SETTLE, RETURN, DISCARD)
    writer = _begin(kind, time_ms)
    write_u64(writer, consumer)
    write_numbers(writer, tags)
    return writer.getvalue()


def encode_configure(time_ms: i64, settings: Settings) -> bytes:
    writer = _begin(CONFIGURE, time_ms)
    write_settings(writer, settings)
    return writer.getvalue()


def body_of(data: bytes) -> bytes:
    """The body in the bytes of an ENQUEUE."""
    assert data[1] == ENQUEUE
    return data[BODY_AT:]


def decode_command(data: bytes) -> Command:
    """Decode a command.

    Raise NewerFormatError for a later version: a node must not guess, or its state would differ.
    """
    reader = Reader(data, 0, len(data))
    version = reader.u8()
    if version != COMMAND_VERSION:
        raise NewerFormatError(f"a command of version {version}")
    kind = reader.u8()
    command = Command(kind, reader.u64())
    if kind == ENQUEUE:
        command.actor = reader.u64()
        command.seq = reader.u64()
        command.ttl_ms = reader.u64()
        command.size_bytes = reader.left()
        return command
    _read_rest(reader, command)
    reader.require_end()
    return command


def _read_rest(reader: Reader, command: Command) -> None:
    kind = command.kind
    if kind in (SETTLE, RETURN, DISCARD):
        command.actor = reader.u64()
        command.numbers = reader.numbers()
    elif kind == ATTACH:
        command.actor = reader.u64()
        command.owner = reader.u64()
        command.prefetch = reader.u32()
    elif kind in (DETACH, DOWN):
        command.actor = reader.u64()
    elif kind == CONFIGURE:
        command.settings = read_settings(reader)
    elif kind not in (TIMEOUT, PURGE):
        raise FieldSyntaxError(f"a command of kind {kind}")
