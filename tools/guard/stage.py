"""A broker without sockets, clock or disk, and one peer: only the cost of messages is left.

Turns are ended as in the runtime. Output to the peer is counted in bytes and dropped; its credit is
renewed at once. With a journal, blocks are taken and reported as synced without being written.
"""

from collections.abc import Iterable
from typing import Final

from leveret.amqp.connection import Connection
from leveret.amqp.connection_base import CREDIT_BYTES, AmqpFront, ConnectionLimits
from leveret.amqp.methods import (
    BASIC_CONSUME,
    BASIC_QOS,
    CHANNEL_OPEN,
    CONFIRM_SELECT,
    CONNECTION_OPEN,
    CONNECTION_START_OK,
    CONNECTION_TUNE_OK,
    EXCHANGE_DECLARE,
    FRAME_METHOD,
    QUEUE_BIND,
    QUEUE_DECLARE,
)
from leveret.amqp.writer import MethodWriter
from leveret.auth import SingleUserAuthenticator
from leveret.engine.broker import Broker
from leveret.engine.commands.consuming import refill
from leveret.engine.streams.segments import SegmentStore
from leveret.journal.journal import Journal
from leveret.perf.protocol import Publishes, Template, frame
from leveret.storage.log_reader import LogReader
from leveret.wire.tables import table_of

NOW_MS: Final = 1_700_000_000_000
NOW_NS: Final = 1_000_000_000
CHANNEL: Final = 1
BURST: Final = 50  # messages that one read of a socket brings
LOG_FILE: Final = 1


def method(writer: MethodWriter, channel: int = CHANNEL) -> bytes:
    return frame(FRAME_METHOD, channel, writer.payload())


def publishes(key: str, count: int, *, persistent: bool = False) -> list[bytes]:
    """Return `count` publishes of 16 bytes to a queue, grouped by socket read."""
    made = Publishes(Template("", persistent, {}, False), [key], [16], True, BURST)
    return [made.block(BURST, NOW_NS) for _ in range(count // BURST)]


class Stage:
    """One broker and one peer with one channel."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.broker = Broker(1)
        self.front = AmqpFront(
            self.broker, SingleUserAuthenticator("guest", "guest"), ConnectionLimits(), _no_token
        )
        self.sent_bytes = 0
        self.journal = journal
        self.log = bytearray()  # bytes of the journal, from offset 0 of its file on
        if journal is not None:
            journal.begin_block(LOG_FILE, 0)
            pages = LogReader(self._read)
            pages.trusted_from = LOG_FILE
            self.broker.attach(journal, pages, SegmentStore())
        self.broker.begin_turn(NOW_MS)
        self.connection = Connection(self.front, "127.0.0.1:1", True)
        self.feed(_opening())

    def feed(self, data: bytes) -> None:
        """Process one read of the peer's socket as a turn."""
        self.broker.begin_turn(NOW_MS)
        self.connection.feed(data)
        self.end_turn()
        assert not self.connection.has_rest  # a block makes fewer copies than a turn may make

    def feed_all(self, blocks: Iterable[bytes]) -> None:
        for block in blocks:
            self.feed(block)

    def end_turn(self) -> None:
        broker = self.broker
        turn = broker.turn
        while True:
            broker.end_turn()
            broker.perform()
            if self.journal is not None:
                self._sync(self.journal)
            self._flush()
            if turn.leaving:
                broker.begin_turn(NOW_MS)
            elif not turn.dirty:
                return

    def _sync(self, journal: Journal) -> None:
        turn = self.broker.turn
        unsynced = turn.unsynced
        turn.unsynced = []
        for piece in journal.take_block():
            self.log += piece
        journal.begin_block(LOG_FILE, len(self.log))
        for session in unsynced:
            session.on_synced(session.publish_seq)

    def _flush(self) -> None:
        connection = self.connection
        self.front.dirty.clear()
        for piece in connection.take_output():
            self.sent_bytes += len(piece)
        if connection.credit < CREDIT_BYTES:
            refill(self.broker.slots, connection, CREDIT_BYTES)

    def _read(self, file: int, offset: int, size: int) -> bytes:
        return bytes(self.log[offset : offset + size])

    def declare(self, queue: str, *, durable: bool = False, kind: str = "") -> None:
        arguments = table_of({"x-queue-type": kind} if kind else {})
        writer = MethodWriter(QUEUE_DECLARE).short(0).short_string(queue).octet(2 if durable else 0)
        self.feed(method(writer.table(arguments)))

    def declare_exchange(self, exchange: str, kind: str) -> None:
        writer = MethodWriter(EXCHANGE_DECLARE).short(0).short_string(exchange).short_string(kind)
        self.feed(method(writer.octet(0).table({})))

    def bind(
        self, queue: str, exchange: str, key: str, arguments: dict[str, object] | None = None
    ) -> None:
        writer = MethodWriter(QUEUE_BIND).short(0).short_string(queue).short_string(exchange)
        self.feed(method(writer.short_string(key).octet(1).table(table_of(arguments or {}))))

    def select_confirms(self) -> None:
        self.feed(method(MethodWriter(CONFIRM_SELECT).octet(0)))

    def consume(
        self, queue: str, *, acks: bool, prefetch: int = 0, offset: str | None = None
    ) -> None:
        self.feed(method(MethodWriter(BASIC_QOS).long(0).short(prefetch).octet(0)))
        arguments = table_of({"x-stream-offset": offset} if offset is not None else {})
        writer = MethodWriter(BASIC_CONSUME).short(0).short_string(queue).short_string("c")
        self.feed(method(writer.octet(0 if acks else 2).table(arguments)))


def _opening() -> bytes:
    start = MethodWriter(CONNECTION_START_OK).table({}).short_string("PLAIN")
    start.long_string(b"\0guest\0guest").short_string("en_US")
    tune = MethodWriter(CONNECTION_TUNE_OK).short(CHANNEL).long(131_072).short(0)
    opened = MethodWriter(CONNECTION_OPEN).short_string("/").short_string("").octet(0)
    methods = [method(start, 0), method(tune, 0), method(opened, 0)]
    channel = method(MethodWriter(CHANNEL_OPEN).short_string(""))
    return b"".join([b"AMQP\x00\x00\x09\x01", *methods, channel])


def _no_token() -> str:
    return "0" * 22
