"""The state of a replicated queue: messages, consumers and publishers; and its snapshot.

    snapshot  = version:u8 now_ms:u64 settings
                count:u32 message*                 all messages, in the order of the state
                fresh:numbers returned:numbers     indexes of the ready messages
                count:u32 consumer* rota:numbers
                count:u32 (index:u64 reason:u8)*   dead letters that have not arrived
                count:u32 (publisher:u64 seq:u64)*
    message   = index:u64 size:u32 expires_ms:u64 returns:u32
    consumer  = number:u64 owner:u64 prefetch:u32 attached:u8 next_tag:u64
                count:u32 (tag:u64 index:u64 since_ms:u64)*
    settings  = delivery_limit:u32 max_length:u32 ttl_ms:u64 hold_ms_max:u64 flags:u8
    numbers   = count:u32 u64*

A message is its index in the log and a short header; its body stays in the log. Dictionaries keep
the order in which the log filled them, and so does the snapshot: a node that starts from it
continues exactly like the others.
"""

from collections import deque
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.raft.fields import Reader, write_numbers, write_u32, write_u64
from leveret.errors import NewerFormatError

MACHINE_VERSION: Final = 1

_DEAD_LETTERS: Final = 1
_SINGLE_ACTIVE: Final = 2


class Settings:
    """The rules of the queue; 0 is no limit."""

    def __init__(self) -> None:
        self.delivery_limit: i64 = 0  # returns, after which a message leaves
        self.max_length: i64 = 0  # ready messages; the oldest leave
        self.ttl_ms: i64 = 0
        self.hold_ms_max: i64 = 0  # how long a consumer may hold a message
        self.dead_letters = False  # keep what leaves until it has arrived elsewhere
        self.single_active = False  # only the first consumer gets messages


class Queued:
    """One message of the queue."""

    def __init__(self, index: i64, size_bytes: i64, expires_ms: i64, returns: i64) -> None:
        self.index: i64 = index
        self.size_bytes: i64 = size_bytes
        self.expires_ms: i64 = expires_ms  # 0: never
        self.returns: i64 = returns


class Held:
    """A message that a consumer has got and given no verdict on."""

    def __init__(self, index: i64, since_ms: i64) -> None:
        self.index: i64 = index
        self.since_ms: i64 = since_ms


class Consumer:
    """Who takes messages, and which it holds.

    Each delivery has its own tag, as a message can come again: a verdict that arrives late or twice
    must not be taken for one on the next delivery of the same message.
    """

    def __init__(self, number: i64, owner: i64, prefetch: i64) -> None:
        self.number: i64 = number
        self.owner: i64 = owner
        self.prefetch: i64 = prefetch
        self.is_attached = True
        self.next_tag: i64 = 1
        self.held: dict[int, Held] = {}  # by tag

    def has_room(self) -> bool:
        return self.is_attached and len(self.held) < self.prefetch


class Contents:
    """All that is replicated."""

    def __init__(self) -> None:
        self.now_ms: i64 = 0  # the highest time that a leader has stamped
        self.settings = Settings()
        self.messages: dict[int, Queued] = {}
        self.fresh: deque[int] = deque()  # ready and never given back, ascending
        self.returned: list[int] = []  # a heap: given back, to be delivered first
        self.consumers: dict[int, Consumer] = {}
        self.rota: deque[int] = deque()  # consumers in the order of their turns
        self.dead: dict[int, int] = {}  # index to reason
        self.publishers: dict[int, int] = {}  # to the last number taken

    def live_indexes(self) -> list[int]:
        """The entries whose bodies are still needed, ascending."""
        return sorted(self.messages)


def write_settings(writer: BytesWriter, settings: Settings) -> None:
    write_u32(writer, settings.delivery_limit)
    write_u32(writer, settings.max_length)
    write_u64(writer, settings.ttl_ms)
    write_u64(writer, settings.hold_ms_max)
    dead_letters = _DEAD_LETTERS if settings.dead_letters else 0
    writer.append(dead_letters | (_SINGLE_ACTIVE if settings.single_active else 0))


def read_settings(reader: Reader) -> Settings:
    settings = Settings()
    settings.delivery_limit = reader.u32()
    settings.max_length = reader.u32()
    settings.ttl_ms = reader.u64()
    settings.hold_ms_max = reader.u64()
    flags = reader.u8()
    settings.dead_letters = bool(flags & _DEAD_LETTERS)
    settings.single_active = bool(flags & _SINGLE_ACTIVE)
    return settings


def encode_contents(contents: Contents) -> bytes:
    writer = BytesWriter()
    writer.append(MACHINE_VERSION)
    write_u64(writer, contents.now_ms)
    write_settings(writer, contents.settings)
    write_u32(writer, len(contents.messages))
    for message in contents.messages.values():
        write_u64(writer, message.index)
        write_u32(writer, message.size_bytes)
        write_u64(writer, message.expires_ms)
        write_u32(writer, message.returns)
    write_numbers(writer, list(contents.fresh))
    write_numbers(writer, sorted(contents.returned))
    write_u32(writer, len(contents.consumers))
    for consumer in contents.consumers.values():
        _write_consumer(writer, consumer)
    write_numbers(writer, list(contents.rota))
    write_u32(writer, len(contents.dead))
    for index, reason in contents.dead.items():
        write_u64(writer, index)
        writer.append(reason)
    _write_pairs(writer, contents.publishers)
    return writer.getvalue()


def _write_consumer(writer: BytesWriter, consumer: Consumer) -> None:
    write_u64(writer, consumer.number)
    write_u64(writer, consumer.owner)
    write_u32(writer, consumer.prefetch)
    writer.append(1 if consumer.is_attached else 0)
    write_u64(writer, consumer.next_tag)
    write_u32(writer, len(consumer.held))
    for tag, held in consumer.held.items():
        write_u64(writer, tag)
        write_u64(writer, held.index)
        write_u64(writer, held.since_ms)


def _write_pairs(writer: BytesWriter, pairs: dict[int, int]) -> None:
    write_u32(writer, len(pairs))
    for key, value in pairs.items():
        write_u64(writer, key)
        write_u64(writer, value)


def decode_contents(data: bytes) -> Contents:
    """Decode a snapshot.

    Raise NewerFormatError for a later version, and FieldSyntaxError for malformed bytes.
    """
    reader = Reader(data, 0, len(data))
    version = reader.u8()
    if version != MACHINE_VERSION:
        raise NewerFormatError(f"a queue's snapshot of version {version}")
    contents = Contents()
    contents.now_ms = reader.u64()
    contents.settings = read_settings(reader)
    for _ in range(reader.count(24)):
        index = reader.u64()
        size_bytes = reader.u32()
        expires_ms = reader.u64()
        contents.messages[index] = Queued(index, size_bytes, expires_ms, reader.u32())
    contents.fresh = deque(reader.numbers())
    contents.returned = reader.numbers()  # sorted, and so a heap
    for _ in range(reader.count(33)):
        consumer = _read_consumer(reader)
        contents.consumers[consumer.number] = consumer
    contents.rota = deque(reader.numbers())
    for _ in range(reader.count(9)):
        index = reader.u64()
        contents.dead[index] = reader.u8()
    contents.publishers = _read_pairs(reader)
    reader.require_end()
    return contents


def _read_consumer(reader: Reader) -> Consumer:
    number = reader.u64()
    owner = reader.u64()
    consumer = Consumer(number, owner, reader.u32())
    consumer.is_attached = reader.u8() != 0
    consumer.next_tag = reader.u64()
    for _ in range(reader.count(24)):
        tag = reader.u64()
        index = reader.u64()
        consumer.held[tag] = Held(index, reader.u64())
    return consumer


def _read_pairs(reader: Reader) -> dict[int, int]:
    pairs: dict[int, int] = {}
    for _ in range(reader.count(16)):
        key = reader.u64()
        pairs[key] = reader.u64()
    return pairs
