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

import pytest

from leveret.cluster.handshake import (
    BULK,
    NONCE_BYTES,
    PURPOSES,
    TALK,
    Dialing,
    Identity,
    Listening,
)
from leveret.cluster.link import WAITING_BYTES_MAX, Link
from leveret.cluster.links import PACE, STRANGERS_MAX, Address, Links, Pace, Tls
from leveret.cluster.raft.codec import FRAME_BYTES_MAX
from leveret.cluster.raft.entry import COMMAND, Entry
from leveret.cluster.raft.messages import APPEND, HEARTBEAT, SNAPSHOT, Message
from leveret.config.settings import Settings
from leveret.runtime.certificates import Certificates
from tests.proxy import Proxy, proxy
from tests.tls.certificates import TestAuthority
from tests.unit.cluster.played import WAIT_S, played, until

SECRET = b"a secret of the cluster"
HOST = "127.0.0.1"
QUICK = Pace(watch_s=0.1, silent_s=0.3)


class End:
    """One node's links, and what came over them."""

    def __init__(
        self,
        node: int,
        *,
        secret: bytes = SECRET,
        incarnation: int = 1,
        pace: Pace = PACE,
        tls: Tls | None = None,
    ) -> None:
        self.node = node
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        me = Identity(node, "test", secret, incarnation)
        self.links = Links(me, self._on_messages, chance=Random(node), pace=pace, tls=tls)

    def _on_messages(self, messages: list[Message], size_bytes: int) -> None:
        assert size_bytes > 0
        for message in messages:
            self.inbox.put_nowait(message)

    async def next(self) -> Message:
        async with asyncio.timeout(WAIT_S):
            return await self.inbox.get()

    def knows(self, other: End, port: int = 0) -> None:
        self.links.add_peer(other.node, Address(HOST, port or other.links.port))


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
async def connected_by_line(one: End, two: End) -> AsyncIterator[Proxy]:
    """The same, with a proxy between them."""
    async with ends(one, two), proxy(one.links.port) as line:
        one.knows(two)
        two.knows(one, line.port)
        await until_connected(one, two)
        yield line


async def until_connected(one: End, other: End) -> None:
    await until(lambda: one.links.is_connected(other.node) and other.links.is_connected(one.node))


def heartbeat(source: int, target: int, group: int = 1) -> Message:
    return Message(HEARTBEAT, source, target, group, 5)


def append(source: int, target: int, size_bytes: int) -> Message:
    message = Message(APPEND, source, target, 1, 5)
    message.entries = [Entry(1, 5, COMMAND, bytes(size_bytes))]
    return message


@played
async def test_messages_of_a_turn_arrive_in_order_on_either_side() -> None:
    one, two = End(1), End(2)
    async with connected(one, two):
        two.links.send(1, [heartbeat(2, 1, group) for group in (1, 2, 3)])
        assert [(await one.next()).group for _ in range(3)] == [1, 2, 3]
        one.links.send(2, [heartbeat(1, 2, 9)])
        assert (await two.next()).group == 9
        chunk = Message(SNAPSHOT, 1, 2, 4, 5)
        chunk.data = bytes(60_000)
        one.links.send_bulk(2, [chunk])
        assert (await two.next()).data == chunk.data


@played
async def test_large_turns_are_split_and_whole_again() -> None:
    one, two = End(1), End(2)
    async with connected(one, two):
        sizes = [5_000_000, 3, 4_000_000, 1_000_000, 7]
        two.links.send(1, [append(2, 1, size) for size in sizes])
        assert [len((await one.next()).entries[0].data) for _ in sizes] == sizes


@played
async def test_a_lost_connection_comes_back() -> None:
    one, two = End(1), End(2)
    async with connected_by_line(one, two) as line:
        before = two.links.dials  # the higher number dials
        line.reset()
        await until(lambda: two.links.dials == before + len(PURPOSES))
        await until_connected(one, two)
        two.links.send(1, [heartbeat(2, 1)])
        assert (await one.next()).kind == HEARTBEAT


@played
async def test_a_silent_peer_is_given_up_and_found_again() -> None:
    one, two = End(1, pace=QUICK), End(2, pace=QUICK)
    async with connected_by_line(one, two) as line:
        before = two.links.dials
        line.silence()  # lines of now only
        await until(lambda: two.links.dials >= before + len(PURPOSES))
        # The other one may not have given up yet: it takes the new link for the old one.
        await until_connected(one, two)
        two.links.send(1, [heartbeat(2, 1)])
        assert (await one.next()).kind == HEARTBEAT
        one.links.send(2, [heartbeat(1, 2)])
        assert (await two.next()).kind == HEARTBEAT


@played
async def test_a_node_that_was_held_up_itself_gives_nobody_up() -> None:
    one, two = End(1, pace=QUICK), End(2, pace=QUICK)
    async with connected(one, two):
        before = two.links.dials
        for _ in range(5):
            time.sleep(2 * QUICK.silent_s)  # noqa: ASYNC251 - the whole process is held up
            await asyncio.sleep(QUICK.watch_s / 2)
        two.links.send(1, [heartbeat(2, 1)])
        assert (await one.next()).kind == HEARTBEAT
        assert two.links.dials == before


@played
async def test_frames_to_a_peer_that_does_not_read_are_dropped_and_counted() -> None:
    one, two = End(1), End(2)
    async with connected_by_line(one, two) as line:
        line.stall()
        sent = 0
        while two.links.dropped == 0:
            two.links.send(1, [append(2, 1, 1_000_000)])
            sent += 1
            assert sent * 1_000_000 < 2 * WAITING_BYTES_MAX
        line.flow()
        arrived = [await one.next() for _ in range(sent - two.links.dropped)]
        assert len(arrived) == sent - 1


@played
async def test_what_nobody_is_connected_for_is_dropped_and_counted() -> None:
    one = End(1)
    async with ends(one):
        one.links.send(2, [heartbeat(1, 2)])
        assert one.links.dropped == 1


@played
async def test_a_wrong_secret_is_refused_and_both_logs_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    one, two = End(1), End(2, secret=b"something else here")
    async with ends(one, two):
        introduce(one, two)
        await until(lambda: "it refuses this node: its secret is wrong" in caplog.text)
        assert not one.links.is_connected(2)
    refused = [record for record in caplog.records if "refused: its secret" in record.message]
    assert refused
    assert "node 2 at 127.0.0.1" in refused[0].message


@played
async def test_a_node_that_is_no_peer_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    one, two = End(1), End(2)
    async with ends(one, two):
        two.knows(one)
        await until(lambda: "it is no node of this cluster" in caplog.text)
        assert not two.links.is_connected(1)


@played
async def test_a_second_process_of_a_number_is_refused_until_the_first_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two, twin = End(1), End(2), End(2, incarnation=2)
    async with ends(one, two, twin):
        introduce(one, two)
        await until_connected(one, two)
        twin.knows(one)
        await until(lambda: "another process of the same number" in caplog.text)
        assert not twin.links.is_connected(1)
        two.links.send(1, [heartbeat(2, 1, 7)])
        assert (await one.next()).group == 7
        await two.links.stop()
        await until_connected(one, twin)


@played
async def test_a_stranger_that_says_nothing_wrong_frames_or_too_much_is_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = End(1), End(2)
    async with ends(one, two):
        one.knows(two)
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\xff\xff" + bytes(70_000)):
            reader, writer = await asyncio.open_connection(HOST, one.links.port)
            writer.write(data)
            async with asyncio.timeout(WAIT_S):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
        assert "breaks the protocol" in caplog.text


@pytest.mark.parametrize(
    "frame",
    [
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        (3).to_bytes(4, "big") + b"abc",
        (30).to_bytes(4, "big") + bytes(30),
    ],
)
@played
async def test_a_malformed_frame_closes_the_connection_with_one_line(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    one = End(1)
    async with ends(one):
        one.links.add_peer(2, Address(HOST, 1))
        reader, writer = await dialed(one)
        writer.write(frame)
        async with asyncio.timeout(WAIT_S):
            while await reader.read(1000):
                pass
        writer.close()
        lines = [r for r in caplog.records if "breaks the protocol" in r.message]
        assert len(lines) == 1
        assert "node 2" in lines[0].message


async def dialed(end: End) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Node 2, by hand, after its handshake."""
    shake = Dialing(Identity(2, "test", SECRET, 1), bytes(32), 1, TALK)
    reader, writer = await asyncio.open_connection(HOST, end.links.port)
    writer.write(shake.begin())
    async with asyncio.timeout(WAIT_S):
        while not shake.is_done:
            writer.write(shake.feed(await reader.read(1000)))
    return reader, writer


@played
async def test_a_peer_may_not_speak_for_another(caplog: pytest.LogCaptureFixture) -> None:
    one, two, three = End(1), End(2), End(3)
    async with ends(one, two, three):
        for end in (two, three):
            introduce(one, end)
        await until_connected(one, two)
        await until_connected(one, three)
        link = two.links._open[1, TALK]
        link._handshake.me = Identity(3, "test", SECRET, 1)
        two.links.send(1, [heartbeat(3, 1)])
        await until(lambda: "a frame from 3 for 1" in caplog.text)
        assert one.inbox.empty()


@played
async def test_a_node_that_has_failed_is_gone_and_leaves_its_place_to_another_process() -> None:
    one, two, twin = End(1), End(2), End(2, incarnation=2)
    async with ends(twin), connected(one, two):
        two.links.abort()
        two.links.add_peer(1, Address(HOST, 1))  # too late for that
        await until(lambda: not dial_tasks())
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
async def test_a_link_that_was_given_up_before_it_was_made_ends_at_once() -> None:
    one = End(1)
    link = Link(one.links, Listening(one.links.me, bytes(NONCE_BYTES)))
    link.abort("too many strangers")
    server = await asyncio.get_running_loop().create_server(lambda: link, HOST, 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    server.close()
    await link.closed
    assert link._deadline is None  # nobody had to wait for it


@played
async def test_a_paused_node_reads_nothing_until_it_goes_on() -> None:
    one, two = End(1), End(2)
    async with connected(one, two):
        one.links.pause()
        two.links.send(1, [heartbeat(2, 1)])
        two.links.send(1, [chunk_of(2, 1)], BULK)
        await asyncio.sleep(0.05)
        assert one.inbox.empty()
        one.links.resume()
        assert {(await one.next()).kind, (await one.next()).kind} == {HEARTBEAT, SNAPSHOT}


def chunk_of(source: int, target: int) -> Message:
    message = Message(SNAPSHOT, source, target, 1, 5)
    message.data = b"chunk"
    return message


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
        two.links.send(1, [heartbeat(2, 1, 7)])
        assert (await one.next()).group == 7
        # A dial that fails is followed by another: after some of them nothing is connected.
        await until(lambda: three.links.dials > 4 and four.links.dials > 4)
        assert [fact.peer for fact in one.links.facts()] == [2, 2]
        assert three.links.facts() == four.links.facts() == []


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
