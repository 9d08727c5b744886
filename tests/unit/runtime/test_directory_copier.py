"""Copies of directories between two nodes: every end of a copy is told at once, and once."""

import asyncio
import threading
from collections.abc import Callable
from typing import cast

import msgspec

from leveret.checksum import crc32
from leveret.runtime.directory_copier import (
    DATA,
    Accept,
    Begin,
    DirectoryCopier,
    End,
    Finish,
    Offer,
)
from leveret.storage.directory_copy import CopySource, CopyTarget
from leveret.storage.file_names import log_name
from leveret.testing.disk import FakeDisk
from tests.unit.cluster.played import played, until

OFFER = Offer(7, 100, 3, [log_name(7)])


class Source:
    """A directory of the leader with one file. Reading it takes until the test lets it go on."""

    def __init__(self) -> None:
        self.index = OFFER.index
        self.number = OFFER.number
        self.files = [msgspec.defstruct("File", ["name", "size"])(log_name(7), 3)]
        self.reading = threading.Event()
        self.may_read = threading.Event()
        self.may_read.set()
        self.is_read_after_close = False
        self.is_closed = False

    def total_bytes(self) -> int:
        return 3

    def read(self, place: int, offset: int, size: int) -> bytes:
        self.reading.set()
        self.may_read.wait(60)
        self.is_read_after_close = self.is_read_after_close or self.is_closed
        return b"abc"[offset:]


class Host:
    """A node whose connections the test takes away."""

    def __init__(self) -> None:
        self.is_connected = True
        self.leaders = {"b", "c"}  # offers of these nodes are taken
        self.sent: list[bytes] = []
        self.source = Source()
        self.ends: list[int] = []  # of copies: the last block, or 0
        self.disk = FakeDisk()
        self.copier = DirectoryCopier(self.disk, self)

    def copy(self) -> None:
        self.copier.copy_to("b", self.ends.append)

    def take(self, message: msgspec.Struct) -> None:
        self.copier.on_data("b", msgspec.json.encode(message))

    def has_sent(self, kind: str) -> bool:
        return any(b'"type":"%s"' % kind.encode() in data for data in self.sent)

    def send_data(self, peer: str, *pieces: bytes) -> bool:
        if self.is_connected:
            self.sent.append(b"".join(pieces))
        return self.is_connected

    def begin_copy(self, done: Callable[[CopySource | None], None]) -> None:
        done(cast(CopySource, self.source))

    def end_copy(self, source: CopySource) -> None:
        self.source.is_closed = True

    def term_of(self, index: int) -> int:
        return OFFER.term

    def follows(self, peer: str) -> bool:
        return peer in self.leaders

    def may_install(self, index: int, term: int) -> bool:
        return True

    def install(self, target: CopyTarget, offer: Offer) -> None:
        raise AssertionError("no copy is whole")


@played
async def test_a_copy_without_a_connection_fails_at_once() -> None:
    host = Host()
    host.is_connected = False
    host.copy()
    await until(lambda: host.ends == [0])
    assert host.source.is_closed


@played
async def test_a_copy_that_is_given_up_before_it_has_begun_is_told_as_failed() -> None:
    host = Host()
    host.copy()
    host.copier.on_lost("b")
    await until(lambda: host.ends == [0])


@played
async def test_a_copy_ends_with_its_connection_and_leaves_its_files_alone_afterwards() -> None:
    host = Host()
    host.source.may_read.clear()
    host.copy()
    await until(lambda: host.has_sent("Offer"))
    host.take(Accept({}))
    await until(host.source.reading.is_set)
    host.copier.on_lost("b")
    host.copy()  # waits for the thread of the first one
    await asyncio.sleep(0)
    assert host.ends == []
    assert not host.source.is_closed
    host.source.may_read.set()
    await until(lambda: host.ends == [0])
    assert not host.source.is_read_after_close
    host.copier.stop()
    await until(lambda: host.ends == [0, 0])


@played
async def test_a_member_that_cannot_answer_gives_the_copy_up() -> None:
    host = Host()
    host.is_connected = False
    host.take(OFFER)
    await until(lambda: not host.copier._tasks)
    host.is_connected = True
    host.take(Begin(log_name(7)))  # of the copy that was given up
    host.copier.on_data("b", DATA + b"abc")
    host.take(Finish())
    assert host.sent == []
    host.take(OFFER)
    await until(lambda: host.has_sent("Accept"))
    host.copier.stop()
    await until(lambda: not host.copier._tasks)


@played
async def test_data_that_came_together_is_written_in_order_and_acknowledged() -> None:
    host = Host()
    host.take(OFFER)
    await until(lambda: host.has_sent("Accept"))
    host.take(Begin(log_name(7)))
    for piece in (b"ab", b"c", b"defg"):
        host.copier.on_data("b", DATA + piece)
    host.take(End(7, crc32(b"abcdefg")))
    acked: list[int] = []

    def is_acked() -> bool:
        sent = [msgspec.json.decode(data) for data in host.sent]
        acked[:] = [message["size"] for message in sent if message["type"] == "Ack"]
        return sum(acked) == 7

    await until(is_acked)
    host.take(Begin("other"))  # the file before it is whole: this is the fault that is told
    await until(lambda: host.has_sent("Refuse"))
    assert b"the file other was not offered" in host.sent[-1]


@played
async def test_the_copy_of_a_new_leader_replaces_that_of_the_old_one() -> None:
    host = Host()
    host.take(OFFER)
    await until(lambda: host.has_sent("Accept"))
    host.take(Begin(log_name(7)))
    host.copier.on_data("b", DATA + b"abc")
    await until(lambda: host.has_sent("Ack"))
    host.sent.clear()

    def take_from_new(message: msgspec.Struct) -> None:
        host.copier.on_data("c", msgspec.json.encode(message))

    take_from_new(OFFER)
    await until(lambda: host.has_sent("Accept"))
    assert b"node c leads now" in host.sent[0]
    take_from_new(Begin(log_name(7)))
    host.copier.on_data("c", DATA + b"other")
    host.copier.on_data("b", DATA + b"late")
    take_from_new(End(5, crc32(b"other")))
    take_from_new(Begin("unknown"))  # the file before it is whole: this is the fault that is told
    await until(lambda: b"the file unknown was not offered" in host.sent[-1])
    assert list(host.disk.contents().values()) == [b"other"]


@played
async def test_a_node_that_does_not_lead_cannot_send_a_copy_or_end_one() -> None:
    host = Host()
    host.take(OFFER)
    host.take(Begin(OFFER.names[0]))
    host.copier.on_data("b", DATA + b"abc")
    await until(lambda: host.has_sent("Ack"))
    host.sent.clear()
    host.copier.on_data("stranger", msgspec.json.encode(OFFER))
    assert b"only the node that leads may send a copy" in host.sent[0]
    host.copier.on_data("b", DATA + b"def")
    await until(lambda: host.has_sent("Ack"))
    host.copier.stop()
