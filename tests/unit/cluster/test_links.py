"""Connections between nodes over loopback: kept open, bounded, and closed to strangers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import cast

import pytest

from leveret.buffered_protocol import adapted
from leveret.cluster.admission import removed, require_welcome
from leveret.cluster.errors import ClusterError, LinkRefusedError
from leveret.cluster.handshake import (
    BULK,
    KEPT,
    NONCE_BYTES,
    NOT_LEADER,
    RELAY,
    TALK,
    Card,
    Dialing,
    Listening,
)
from leveret.cluster.link import (
    BUFFER_BYTES,
    DATA_BYTES_MAX,
    GROWN_BUFFER_BYTES,
    WAITING_BYTES_MAX,
    Link,
)
from leveret.cluster.links import STRANGERS_MAX, Links
from leveret.cluster.peers import PACE, Address, Answer, Pace, Tls
from leveret.cluster.raft.block import NORMAL, Block
from leveret.cluster.raft.codec import FRAME_BYTES_MAX
from leveret.cluster.raft.messages import APPEND, HEARTBEAT, Message
from leveret.cluster.relay import AMQPS, HTTP, CertificateNames, RelayHead, attach
from leveret.cluster.relay_slots import OPENING_MAX
from leveret.config.settings import Settings
from leveret.runtime.certificates import Certificates
from tests.proxy import Proxy, proxy
from tests.tls.certificates import TestAuthority
from tests.unit.cluster.played import WAIT_S, played, until

SECRET = b"a secret of the cluster"
HOST = "127.0.0.1"
QUICK = Pace(watch_s=0.1, silent_s=0.3)
NAMES = ("", "a", "b", "c", "d")


class End:
    """One node's links, and what came over them. All nodes belong to one cluster."""

    def __init__(
        self,
        number: int,
        *,
        secret: bytes = SECRET,
        incarnation: int = 1,
        pace: Pace = PACE,
        tls: Tls | None = None,
    ) -> None:
        self.number = number
        self.name = NAMES[number]
        self.incarnation = incarnation
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.data: asyncio.Queue[bytes] = asyncio.Queue()
        self.lost: list[str] = []  # peers whose link was lost
        self.messages_lost: list[str] = []  # peers whose link for messages was replaced
        self.data_lost: list[str] = []  # peers whose link for data was lost or replaced
        self.refused: list[int] = []
        self.refused_at: dict[str, str] = {}  # the newest sentence by name
        self.drained = asyncio.Event()
        self.leads = True
        self.relays: asyncio.Queue[tuple[RelayHead, Echo]] = asyncio.Queue()
        self.links = Links(self, secret, chance=Random(number), pace=pace, tls=tls)

    def card(self) -> Card:
        uid = self.name.encode()
        return Card(self.name, uid, f"{HOST}:1", self.incarnation, peers=NAMES[1:])

    def require_welcome(self, card: Card, *, is_relay: bool) -> None:
        require_welcome(self.card(), None, card)
        if is_relay and not self.leads:
            raise LinkRefusedError(NOT_LEADER, f"node {self.name} does not lead", by_peer=False)

    def on_connected(self, peer: str, card: Card) -> None:
        pass

    def on_lost(self, peer: str) -> None:
        self.lost.append(peer)

    def on_messages_lost(self, peer: str) -> None:
        self.messages_lost.append(peer)

    def on_data_lost(self, peer: str) -> None:
        self.data_lost.append(peer)

    def on_refused(self, peer: str, code: int, sentence: str) -> None:
        self.refused.append(code)
        self.refused_at[peer] = sentence

    def on_messages(self, peer: str, messages: list[Message], size_bytes: int) -> None:
        assert size_bytes > 0
        for message in messages:
            self.inbox.put_nowait(message)

    def on_request(self, peer: str, kind: int, payload: bytes, answer: Answer) -> None:
        if kind == 1:
            answer(True, f"{peer} asked {payload.decode()}")
        elif kind == 2:
            answer(False, "it cannot be done")

    def on_data(self, peer: str, data: bytes) -> None:
        self.data.put_nowait(data)

    def on_writable(self, peer: str) -> None:
        self.drained.set()

    def on_relay(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        echo = Echo()
        attach(transport, echo, rest)
        self.relays.put_nowait((head, echo))

    async def next(self) -> Message:
        async with asyncio.timeout(WAIT_S):
            return await self.inbox.get()

    def knows(self, other: End, port: int = 0) -> None:
        peers = self.links.peers()
        peers[other.name] = Address(HOST, port or other.links.port)
        self.links.set_peers(peers)

    def send(self, other: End, messages: list[Message]) -> None:
        self.links.send(other.name, self.number, other.number, messages)


class Echo(asyncio.Protocol):
    """Sends everything back."""

    def __init__(self) -> None:
        self.received = b""
        self.is_lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()


class Client(asyncio.Protocol):
    """Collects everything that comes."""

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


@asynccontextmanager
async def ends(*found: End) -> AsyncIterator[None]:
    for end in found:
        await end.links.start(HOST, 0)
    try:
        yield
    finally:
        for end in found:
            await end.links.stop()


def introduce(one: End, other: End) -> None:
    one.knows(other)
    other.knows(one)


@asynccontextmanager
async def connected(one: End, two: End) -> AsyncIterator[None]:
    """Two nodes that know each other, once they are connected."""
    async with ends(one, two):
        introduce(one, two)
        await until_connected(one, two)
        yield


@asynccontextmanager
async def connected_pair(pace: Pace = PACE) -> AsyncIterator[tuple[End, End]]:
    one, two = End(1, pace=pace), End(2, pace=pace)
    async with connected(one, two):
        yield one, two


@asynccontextmanager
async def connected_by_line(pace: Pace = PACE) -> AsyncIterator[tuple[End, End, Proxy]]:
    """The same, with a proxy between them, which only the second one dials."""
    one, two = End(1, pace=pace), End(2, pace=pace)
    async with ends(one, two), proxy(one.links.port) as line:
        two.knows(one, line.port)
        await until_connected(one, two)
        yield one, two, line


async def until_connected(one: End, other: End) -> None:
    await until(lambda: one.links.is_connected(other.name) and other.links.is_connected(one.name))


def heartbeat(source: int, target: int, index: int = 1) -> Message:
    message = Message(HEARTBEAT, source, target, 5)
    message.index = index
    return message


def append(source: int, target: int, size_bytes: int) -> Message:
    message = Message(APPEND, source, target, 5)
    message.blocks = [Block(1, 5, NORMAL, bytes(size_bytes))]
    return message


@played
async def test_messages_of_a_turn_arrive_in_order_on_either_side() -> None:
    async with connected_pair() as (one, two):
        two.send(one, [heartbeat(2, 1, index) for index in (1, 2, 3)])
        assert [(await one.next()).index for _ in range(3)] == [1, 2, 3]
        one.send(two, [heartbeat(1, 2, 9)])
        assert (await two.next()).index == 9


@played
async def test_frames_of_any_size_arrive_whole() -> None:
    sizes = [5_000_000, 3, BUFFER_BYTES, BUFFER_BYTES - 60, 1_000_000, 7]
    sizes += [1000 * at for at in range(60)]
    async with connected_pair() as (one, two):
        two.send(one, [append(2, 1, size) for size in sizes])
        for size in sizes:
            two.send(one, [append(2, 1, size)])
        assert [len((await one.next()).blocks[0].data) for _ in range(2 * len(sizes))] == sizes * 2


@played
async def test_frames_that_are_larger_than_a_grown_buffer_arrive_whole() -> None:
    async with connected_pair() as (one, two):
        for size in (GROWN_BUFFER_BYTES * 3 // 2, 7, GROWN_BUFFER_BYTES + 1):
            message = append(2, 1, 0)
            message.blocks = [Block(1, 5, NORMAL, Random(size).randbytes(size))]
            two.send(one, [message])
            assert (await one.next()).blocks[0].data == message.blocks[0].data


@played
async def test_a_lost_connection_comes_back() -> None:
    async with connected_by_line() as (one, two, line):
        before = two.links.dials
        line.reset()
        await until(lambda: one.lost == ["b"] and two.lost == ["a"])  # told once each
        await until(lambda: two.links.dials >= before + len(KEPT))
        await until_connected(one, two)
        two.send(one, [heartbeat(2, 1)])
        assert (await one.next()).kind == HEARTBEAT


@played
async def test_a_node_whose_address_only_the_other_one_knows_is_dialed_by_it() -> None:
    one, two = End(1), End(2)
    async with ends(one, two):
        one.knows(two)  # the name that sorts first dials, after a while
        await until_connected(one, two)


@played
async def test_nodes_that_dial_each_other_at_the_same_time_keep_one_connection() -> None:
    one, two = End(1), End(2)
    async with ends(one, two):
        introduce(one, two)
        for _ in range(20):  # the one that should wait does not
            await asyncio.gather(
                *(one.links._dial_once("b", purpose) for purpose in KEPT),
                *(two.links._dial_once("a", purpose) for purpose in KEPT),
            )
        await until_connected(one, two)
        await until(lambda: not [*one.links._others, *two.links._others])
        one.send(two, [heartbeat(1, 2)])
        two.send(one, [heartbeat(2, 1)])
        assert (await one.next()).kind == (await two.next()).kind == HEARTBEAT
        assert len(one.links.facts()) == len(two.links.facts()) == len(KEPT)


@played
async def test_a_silent_peer_is_given_up_and_found_again() -> None:
    async with connected_by_line(QUICK) as (one, two, line):
        before = two.links.dials
        line.silence()  # lines of now only
        await until(lambda: two.links.dials >= before + len(KEPT))
        # The other one may not have given up yet: it takes the new link for the old one.
        await until_connected(one, two)
        two.send(one, [heartbeat(2, 1)])
        assert (await one.next()).kind == HEARTBEAT
        one.send(two, [heartbeat(1, 2)])
        assert (await two.next()).kind == HEARTBEAT


@played
async def test_a_node_that_was_held_up_itself_gives_nobody_up() -> None:
    async with connected_pair(QUICK) as (one, two):
        before = two.links.dials
        for _ in range(5):
            time.sleep(2 * QUICK.silent_s)  # noqa: ASYNC251 - the whole process is held up
            await asyncio.sleep(QUICK.watch_s / 2)
        two.send(one, [heartbeat(2, 1)])
        assert (await one.next()).kind == HEARTBEAT
        assert two.links.dials == before


@played
async def test_frames_to_a_peer_that_does_not_read_are_dropped_and_counted() -> None:
    async with connected_by_line() as (one, two, line):
        line.stall()
        sent = 0
        while two.links.dropped == 0:
            two.send(one, [append(2, 1, 1_000_000)])
            sent += 1
            assert sent * 1_000_000 < 2 * WAITING_BYTES_MAX
        line.flow()
        arrived = [await one.next() for _ in range(sent - two.links.dropped)]
        assert len(arrived) == sent - 1


@played
async def test_what_nobody_is_connected_for_is_dropped_and_counted() -> None:
    one, two = End(1), End(2)
    async with ends(one):
        one.send(two, [heartbeat(1, 2)])
        assert one.links.dropped == 1
        assert not one.links.send_data("b", b"x")
        with pytest.raises(ClusterError, match="not connected"):
            await one.links.request("b", 1, b"", 1.0)


@played
async def test_requests_are_answered_refused_or_late() -> None:
    async with connected_by_line() as (_, two, line):
        assert await two.links.request("a", 1, b"hello", WAIT_S) == "b asked hello"
        with pytest.raises(ClusterError, match="it cannot be done"):
            await two.links.request("a", 2, b"", WAIT_S)
        with pytest.raises(ClusterError, match="did not answer within"):
            await two.links.request("a", 3, b"", 0.05)
        asyncio.get_running_loop().call_later(0.05, line.reset)
        with pytest.raises(ClusterError, match="is lost"):
            await two.links.request("a", 3, b"", WAIT_S)


@played
async def test_a_sender_of_data_waits_while_much_is_under_way() -> None:
    async with connected_by_line() as (one, two, line):
        line.stall()
        sent = 0
        while two.links.may_send_data("a"):
            assert two.links.send_data("a", bytes([sent % 256]) * DATA_BYTES_MAX)
            sent += 1
            await asyncio.sleep(0)
            assert sent * DATA_BYTES_MAX < WAITING_BYTES_MAX
        line.flow()
        async with asyncio.timeout(WAIT_S):
            await two.drained.wait()
            found = [await one.data.get() for _ in range(sent)]
        assert [(data[0], len(data)) for data in found] == [
            (at % 256, DATA_BYTES_MAX) for at in range(sent)
        ]


HEAD = RelayHead(
    AMQPS,
    "10.0.0.9",
    50_000,
    "10.0.0.2",
    5671,
    is_local=True,
    tls_version="TLSv1.3",
    tls_cipher="TLS_AES_256_GCM_SHA384",
    verifies=True,
    names=CertificateNames("häse", "CN=häse" * 500, "CN=root", "always", "01"),
)


@played
async def test_a_relay_carries_the_facts_and_the_bytes_of_one_client() -> None:
    async with connected_pair() as (one, two):
        transport, rest = await two.links.open_relay("a", HEAD, b"AMQP\x00\x00\x09\x01")
        client = Client()
        attach(transport, client, rest)
        async with asyncio.timeout(WAIT_S):
            head, echo = await one.relays.get()
        assert head == HEAD
        transport.write(b"x" * 1_000_000)
        await until(lambda: client.received == b"AMQP\x00\x00\x09\x01" + b"x" * 1_000_000)
        transport.close()
        async with asyncio.timeout(WAIT_S):
            await echo.is_lost.wait()
        assert not [*one.links._others, *two.links._others]


@played
async def test_a_relay_is_refused_where_nobody_leads_or_can_be_reached() -> None:
    head = RelayHead(HTTP, "10.0.0.9", 1, "10.0.0.2", 2)
    async with connected_pair() as (one, two):
        one.leads = False
        with pytest.raises(LinkRefusedError, match="node a does not lead"):
            await two.links.open_relay("a", head)
        with pytest.raises(ClusterError, match="not known"):
            await two.links.open_relay("x", head)
        two.links._peers["c"] = Address(HOST, 1)
        with pytest.raises(ClusterError, match=r":1 cannot be reached: Connection refused$"):
            await two.links.open_relay("c", head)
        assert not [*one.links._others, *two.links._others]
        assert two.refused == []  # it is no fault of the cluster: another node may lead by now


@played
async def test_a_relay_waits_while_many_others_are_opened() -> None:
    async with connected_pair() as (one, two):
        slots = two.links._relay_slots
        async with contextlib.AsyncExitStack() as held:
            for _ in range(OPENING_MAX):
                await held.enter_async_context(slots.held(HOST))
            opening = asyncio.get_running_loop().create_task(two.links.open_relay("a", HEAD))
            await until(lambda: len(slots._waiting) == 1)
            assert not one.links._others
        transport, rest = await opening
        attach(transport, Client(), rest)
        assert len(slots._waiting) == 0
        transport.close()


@pytest.mark.parametrize("rest", [b"\x7f\xff\xff\xff", b"\0\0\0\2\x09\0", b"\0\0\0\5\0\0abc"])
@played
async def test_a_malformed_relay_head_closes_the_connection(
    rest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    one = End(1)
    async with ends(one):
        reader, writer = await dialed(one, RELAY)
        writer.write(rest)
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b""
        writer.close()
        assert "breaks the protocol" in caplog.text
        assert one.relays.empty()


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.message for record in caplog.records if text in record.message]


@played
async def test_a_wrong_secret_is_refused_and_both_logs_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = End(1), End(2, secret=b"something else here")
    async with ends(one, two):
        two.knows(one)
        text = "a node that calls itself b and node a have different secrets"
        await until(lambda: len(lines(caplog, f"refused: {text}")) > 0)
        await until(lambda: len(lines(caplog, f"it refuses this node: {text}")) > 0)
        assert not one.links.is_connected("b")
        await until(lambda: two.refused != [])
        # The command `ctl cluster status` shows this sentence alone.
        assert two.refused_at["a"].startswith(f"node a refuses this node: {text}")


@played
async def test_a_refused_node_comes_again_without_a_line_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = End(1), End(2, secret=b"something else here")
    async with ends(one, two):
        two.knows(one)
        await until(lambda: len(lines(caplog, "different secrets")) > 0)
        for _ in range(10):
            await two.links._dial_once("a", TALK)
        warned = [
            record
            for record in caplog.records
            if "different secrets" in record.message and record.levelno == logging.WARNING
        ]
        assert len(warned) <= 2 * len(KEPT)


@played
async def test_a_node_at_the_address_of_another_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two, three = End(1), End(2), End(3)
    async with ends(one, two, three):
        three.knows(two, one.links.port)
        text = "node a answers at the address"
        await until(lambda: len(lines(caplog, text)) >= 2)
        assert "correct --cluster-peers" in lines(caplog, text)[0]
        assert one.links.facts() == three.links.facts() == []
        assert set(three.refused_at) == {"b"}
        assert "node a answers at the address" in three.refused_at["b"]


@played
async def test_a_second_node_of_a_name_is_refused_until_the_first_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two, twin = End(1), End(2), End(2, incarnation=2)
    async with ends(one, two, twin):
        introduce(one, two)
        await until_connected(one, two)
        twin.knows(one)
        await until(lambda: len(lines(caplog, "two nodes are called b, at")) >= 2)
        assert not twin.links.is_connected("a")
        two.send(one, [heartbeat(2, 1, 7)])
        assert (await one.next()).index == 7
        await two.links.stop()
        await until_connected(one, twin)


@played
async def test_a_node_that_is_sent_away_reads_why(caplog: pytest.LogCaptureFixture) -> None:
    async with connected_pair() as (one, two):
        one.links.disconnect("b", removed("b"))
        await until(lambda: len(lines(caplog, "node b was removed from the cluster")) >= 2)
        await until(lambda: two.lost == ["a"])


@played
async def test_a_stranger_that_says_nothing_wrong_frames_or_too_much_is_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = End(1)
    async with ends(one):
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\xff\xff" + bytes(70_000)):
            reader, writer = await asyncio.open_connection(HOST, one.links.port)
            writer.write(data)
            async with asyncio.timeout(WAIT_S):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
        assert "does not speak the protocol between nodes" in caplog.text


@pytest.mark.parametrize(
    "frame",
    [
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        (0).to_bytes(4, "big"),
        (3).to_bytes(4, "big") + b"\x01bc",
        (2).to_bytes(4, "big") + b"\x02b",
        (2).to_bytes(4, "big") + b"\x77b",
        (30).to_bytes(4, "big") + b"\x01" + bytes(29),
    ],
)
@played
async def test_a_malformed_frame_closes_the_connection_with_one_line(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    one = End(1)
    async with ends(one):
        reader, writer = await dialed(one, TALK)
        writer.write(frame)
        async with asyncio.timeout(WAIT_S):
            while await reader.read(1000):
                pass
        writer.close()
        (line,) = lines(caplog, "breaks the protocol")
        assert "node b" in line


async def dialed(end: End, purpose: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Node b, by hand, after its handshake."""
    card = Card("b", b"b", f"{HOST}:1", 1, peers=NAMES[1:])
    shake = Dialing(card, SECRET, bytes(32), "a", purpose)
    reader, writer = await asyncio.open_connection(HOST, end.links.port)
    writer.write(shake.begin())
    async with asyncio.timeout(WAIT_S):
        while not shake.is_done:
            writer.write(shake.feed(await reader.read(1000)))
    return reader, writer


@played
async def test_a_size_without_its_bytes_takes_little_memory() -> None:
    one = End(1, pace=Pace(silent_s=60.0))
    async with ends(one):
        _, writer = await dialed(one, TALK)
        await until(lambda: one.links.can_talk("b"))
        (before,) = one.links.facts()
        writer.write(FRAME_BYTES_MAX.to_bytes(4, "big") + bytes(1000))
        await until(lambda: one.links.facts()[0].received_bytes == before.received_bytes + 1004)
        link = one.links._open["b", TALK]
        assert len(link._buffer) == GROWN_BUFFER_BYTES
        writer.close()


@played
async def test_a_part_of_a_message_that_grows_is_seen() -> None:
    one = End(1, pace=Pace(silent_s=60.0))
    async with ends(one):
        _, writer = await dialed(one, TALK)
        await until(lambda: one.links.can_talk("b"))
        assert not one.links.is_receiving("c")
        one.links.is_receiving("b")
        writer.write((1_000_000).to_bytes(4, "big"))
        for _ in range(2):
            writer.write(bytes(1000))
            await until(lambda: one.links.is_receiving("b"))
            link = one.links._open["b", TALK]
            received = link.received_bytes
            while one.links.is_receiving("b"):  # the bytes may come in two parts
                assert link.received_bytes >= received
            assert not one.links.is_receiving("b")
        writer.close()


@played
async def test_the_owner_learns_that_what_was_under_way_is_lost() -> None:
    one = End(1, pace=Pace(silent_s=60.0))  # the connections by hand send no pings
    async with ends(one), contextlib.AsyncExitStack() as stack:

        async def dial(purpose: int) -> asyncio.StreamWriter:
            _, writer = await dialed(one, purpose)
            stack.callback(writer.close)
            return writer

        await dial(TALK)
        bulk = await dial(BULK)
        await until(lambda: one.links.is_connected("b"))
        bulk.close()
        await until(lambda: one.data_lost == ["b"])
        assert not one.links.send_data("b", b"x")
        await dial(BULK)
        await until(lambda: one.links.is_connected("b"))
        await dial(BULK)  # the other node has given up its connection, and this one has not
        await until(lambda: one.data_lost == ["b", "b"])
        assert one.messages_lost == []
        await dial(TALK)
        await until(lambda: one.messages_lost == ["b"])
        assert one.lost == []


@played
async def test_a_node_that_has_failed_is_gone_and_leaves_its_place_to_another_process() -> None:
    one, two, twin = End(1), End(2), End(2, incarnation=2)
    async with ends(twin), connected(one, two):
        two.links.abort()
        two.knows(one, 1)  # too late for that
        await until(lambda: len(dial_tasks()) == len(KEPT))  # those of the other node
        twin.knows(one)
        await until_connected(one, twin)
        assert {fact.incarnation for fact in one.links.facts()} == {2}


def dial_tasks() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("dial ")]


@played
async def test_the_oldest_stranger_makes_room_for_the_newest() -> None:
    one = End(1)
    async with ends(one):
        # As they are while TLS is begun, or nothing was said yet.
        found = [one.links._accept() for _ in range(STRANGERS_MAX + 2)]
        assert list(one.links._others) == found[2:]


@played
async def test_the_strangers_of_a_crowded_host_leave_room_for_those_of_others() -> None:
    one = End(1)
    async with ends(one):
        other = one.links._accept()
        other.address = "10.0.0.9:40000"
        for port in range(2 * STRANGERS_MAX):
            one.links._accept().address = f"10.0.0.1:{port}"
        assert other in one.links._others
        assert len(one.links._others) == STRANGERS_MAX


@played
async def test_a_link_that_was_given_up_before_it_was_made_ends_at_once() -> None:
    one = End(1)
    link = Link(one.links, Listening(one.card(), SECRET, bytes(NONCE_BYTES)))
    link.abort("too many strangers")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: adapted(link, loop), HOST, 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    server.close()
    await link.closed
    assert link._deadline is None  # nobody had to wait for it


def tls_of(authority: TestAuthority, trusted: TestAuthority) -> Tls:
    pair = authority.server()
    settings = Settings(tls_cert=pair.cert, tls_key=pair.key, tls_ca=trusted.ca)
    found = Certificates(settings)
    return Tls(found.links, found.dialing)


@played
async def test_nodes_of_one_authority_connect_and_those_of_another_do_not(tmp_path: Path) -> None:
    ours = TestAuthority(tmp_path / "ours")
    other = TestAuthority(tmp_path / "other", "Other")
    one, two = (End(node, tls=tls_of(ours, ours)) for node in (1, 2))
    # It trusts us, but we do not trust it; and one that has no certificate at all.
    three, four = End(3, tls=tls_of(other, ours)), End(4)
    async with ends(one, two, three, four):
        for end in (two, three, four):
            introduce(one, end)
        await until_connected(one, two)
        two.send(one, [append(2, 1, 1_000_000), heartbeat(2, 1, 7)])
        assert [(await one.next()).kind for _ in range(2)] == [APPEND, HEARTBEAT]
        transport, rest = await two.links.open_relay("a", HEAD, b"hello")
        client = Client()
        attach(transport, client, rest)
        await until(lambda: client.received == b"hello")
        transport.close()
        # A dial that fails is followed by another: after some of them nothing is connected.
        await until(lambda: three.links.dials > 4 and four.links.dials > 4)
        assert [fact.peer for fact in one.links.facts()] == ["b", "b"]
        assert three.links.facts() == four.links.facts() == []


@played
async def test_links_whose_tls_fails_say_what_to_mend(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = TestAuthority(tmp_path / "ours")
    other = TestAuthority(tmp_path / "other", "Other")
    one, two, three = End(1, tls=tls_of(ours, ours)), End(2, tls=tls_of(other, ours)), End(3)
    async with ends(one, two, three):
        one.knows(two)
        one.knows(three)
        refused = (
            f"{HOST}:{two.links.port} shows a certificate that is refused (unable to get local "
            "issuer certificate): renew it, or correct --tls-ca of this node"
        )
        await until(lambda: refused in caplog.text)
        await until(lambda: "b" in one.refused_at)
        assert one.refused_at["b"] == (
            "node a refuses the certificate of node b (unable to get local issuer certificate): "
            "renew it, or correct --tls-ca of node a"
        )
        both = "use --cluster-tls on all nodes or on none"
        await until(lambda: f"it begins with TLS: {both}" in caplog.text)
        await until(lambda: f"(TLS failed: {both})" in caplog.text)


@played
async def test_a_dial_that_cannot_even_begin_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = tls_of(*[TestAuthority(tmp_path)] * 2)
    faults: list[Exception] = [ValueError("no certificate"), ssl.SSLError("no key")] * 2

    def dialing() -> ssl.SSLContext:
        if faults:
            raise faults.pop()
        return tls.dialing()

    async with connected(End(1, tls=tls), End(2, tls=Tls(tls.listening, dialing))):
        assert "cannot be reached: no certificate" in caplog.text


@played
async def test_strangers_that_fail_in_tls_are_forgotten(tmp_path: Path) -> None:
    ours = TestAuthority(tmp_path)
    one, two = (End(node, tls=tls_of(ours, ours)) for node in (1, 2))
    async with ends(one, two):
        for _ in range(STRANGERS_MAX + 20):
            _, writer = await asyncio.open_connection(HOST, one.links.port)
            writer.write(b"this is not TLS at all")
            writer.close()
        introduce(one, two)
        await until_connected(one, two)
        assert len(one.links._others) <= STRANGERS_MAX
