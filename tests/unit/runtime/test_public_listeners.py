"""Clients of a node in a cluster: taken by its own fronts, relayed to the leader, or let go."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

import pytest
import uvloop

from leveret.cluster.errors import NotLeaderError
from leveret.cluster.relay import RelayHead
from leveret.listening import Client, Networks
from leveret.runtime import public_listeners, relays
from leveret.runtime.public_listeners import FindServer, PublicListeners
from leveret.runtime.relays import Relayed, Relays

MEGABYTE = 1_000_000

T = TypeVar("T")


def _run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario on the event loop that nodes use."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(scenario)


class _Paused(asyncio.Protocol):
    """A fresh connection to the leader, which nobody reads yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).pause_reading()


class _Echo(asyncio.Protocol):
    """A front of this node."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@contextlib.asynccontextmanager
async def _leader(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    heads: list[RelayHead],
) -> AsyncIterator[FindServer]:
    """Run a leader that handles connections so. Yield the way to it."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()

    async def find(head: RelayHead, client: Client) -> asyncio.BaseProtocol | Relayed:
        heads.append(head)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(_Paused, *address)
        return transport, b"welcome "

    async with server:
        yield find


@contextlib.asynccontextmanager
async def _listening(
    find: FindServer, found: Relays | None = None
) -> AsyncIterator[tuple[PublicListeners, tuple[str, int]]]:
    listeners = PublicListeners(find, found or Relays(), 0, Networks(""))
    address = listeners.listen("amqp", "127.0.0.1", 0)
    try:
        async with asyncio.timeout(60):
            yield listeners, address
    finally:
        await listeners.stop()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back all bytes, until the client has ended its side."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_bytes_pass_in_both_directions_until_the_client_ends_its_side() -> None:
    async def scenario() -> tuple[bytes, RelayHead, tuple[str, int]]:
        heads: list[RelayHead] = []
        async with _leader(_echo, heads) as find, _listening(find) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            sent = bytes(range(256)) * 4000

            async def send() -> None:
                writer.write(sent)
                await writer.drain()
                writer.write_eof()

            async with asyncio.TaskGroup() as group:
                group.create_task(send())
                got = await reader.read(-1)
            writer.close()
            assert got == b"welcome " + sent
            return got, heads[0], writer.get_extra_info("sockname")

    _, head, client = _run(scenario())
    assert (head.service, head.client_host, head.client_port) == ("amqp", *client)
    assert head.is_local


def test_client_that_reads_nothing_stops_the_leader() -> None:
    async def scenario() -> int:
        sent = 0
        stuck = asyncio.Event()

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            writer.transport.set_write_buffer_limits(high=0)
            with contextlib.suppress(ConnectionError):
                while sent < 200 * MEGABYTE:
                    writer.write(b"x" * MEGABYTE)
                    sent += MEGABYTE
                    try:
                        async with asyncio.timeout(1):
                            await writer.drain()
                    except TimeoutError:
                        stuck.set()
                        break
                else:
                    stuck.set()
                await reader.read()

        async with _leader(flood, []) as find, _listening(find) as (_, address):
            _, writer = await asyncio.open_connection(*address, limit=1024)
            await stuck.wait()
            writer.transport.abort()
        return sent

    assert _run(scenario()) < 100 * MEGABYTE


def test_end_of_either_side_ends_the_other() -> None:
    async def scenario() -> None:
        connected: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        connected = asyncio.Queue()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.put_nowait((reader, writer))

        async with _leader(take, []) as find, _listening(find) as (listeners, address):
            reader, writer = await asyncio.open_connection(*address)
            _, at_leader = await connected.get()
            at_leader.close()  # the leader goes
            assert await reader.read() == b"welcome "
            writer.close()
            reader, writer = await asyncio.open_connection(*address)
            leaders_reader, at_leader = await connected.get()
            assert await reader.readexactly(8) == b"welcome "
            writer.transport.abort()  # the client goes
            with contextlib.suppress(ConnectionError):
                assert await leaders_reader.read() == b""
            at_leader.close()
            while listeners.relayed_count():  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)

    _run(scenario())


def test_client_may_end_its_side_before_the_leader_is_found() -> None:
    async def scenario() -> bytes:
        may_find = asyncio.Event()
        async with _leader(_echo, []) as find:

            async def find_late(head: RelayHead, client: Client) -> asyncio.BaseProtocol | Relayed:
                await may_find.wait()
                return await find(head, client)

            async with _listening(find_late) as (_, address):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"request")
                writer.write_eof()
                _, other = await asyncio.open_connection(*address)  # seen after the first client
                other.close()
                may_find.set()
                got = await reader.read()
                writer.close()
                return got

    assert _run(scenario()) == b"welcome request"


@pytest.mark.parametrize("leader", ["b", "c", ""])
def test_clients_of_a_silent_leader_are_let_go_when_it_leads_no_more(
    leader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "NO_LEADER_S", 0.05)
    monkeypatch.setattr(relays, "NEW_LEADER_S", 0.05)

    async def scenario() -> bool:
        arrived: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        may_end = asyncio.Event()

        async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.put_nowait(writer)
            await may_end.wait()
            writer.write(b"late")
            writer.close()

        found = Relays()
        found.on_leader("b")
        async with _leader(be_silent, []) as find, _listening(find, found) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            await arrived.get()
            assert await reader.readexactly(8) == b"welcome "
            found.on_leader("")
            found.on_leader(leader)
            if leader == "b":  # it was found again in time
                await asyncio.sleep(0.2)
                may_end.set()
            got = await reader.read()
            may_end.set()
            writer.close()
            return got == b"late"

    assert _run(scenario()) == (leader == "b")


def test_fronts_of_this_node_take_the_client() -> None:
    async def scenario() -> None:
        async def find(head: RelayHead, client: Client) -> asyncio.BaseProtocol | Relayed:
            return _Echo()

        async with _listening(find) as (listeners, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            assert listeners.relayed_count() == 0
            writer.close()

    _run(scenario())


@pytest.mark.parametrize("waits", [False, True])
def test_client_without_a_leader_is_let_go(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_listeners, "LEADER_WAIT_S", 0.05)

    async def scenario() -> None:
        async def find(head: RelayHead, client: Client) -> asyncio.BaseProtocol | Relayed:
            if waits:
                await asyncio.Event().wait()
            raise NotLeaderError(0)

        async with _listening(find) as (listeners, address):
            reader, writer = await asyncio.open_connection(*address)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert listeners.enter("10.0.0.1", 3), "clients that were let go count no more"

    _run(scenario())


def test_too_many_clients_without_a_leader_are_refused() -> None:
    async def scenario() -> None:
        async def find(head: RelayHead, client: Client) -> asyncio.BaseProtocol | Relayed:
            raise AssertionError

        listeners = PublicListeners(find, Relays(), 100, Networks(""))
        for _ in range(public_listeners.NETWORK_WAITING_MAX):
            assert listeners.enter("10.0.0.1", 99)
        assert not listeners.enter("10.0.0.1", 99)
        left = public_listeners.WAITING_MAX - public_listeners.NETWORK_WAITING_MAX
        for number in range(left):
            assert listeners.enter(f"10.0.1.{number}", 99)
        assert not listeners.enter("10.0.0.2", 99)
        listeners.leave("10.0.1.0")
        assert not listeners.enter("10.0.0.1", 99), "one address leaves room for others"
        assert listeners.enter("10.0.0.2", 99)
        listeners.leave("10.0.0.1")
        assert not listeners.enter("10.0.0.1", 100)
        assert listeners.enter("10.0.0.1", 99)

    _run(scenario())


@pytest.mark.parametrize("leader", ["c", ""])
def test_connection_to_a_silent_leader_is_given_up_when_it_leads_no_more(leader: str) -> None:
    async def scenario() -> None:
        found = Relays()
        found.on_leader("b")
        is_cancelled = asyncio.Event()

        async def open_silently() -> Relayed:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                is_cancelled.set()
                raise
            raise AssertionError

        async with asyncio.TaskGroup() as tasks:
            opening = tasks.create_task(found.open(open_silently()))
            await asyncio.sleep(0)
            found.on_leader(leader)
        assert opening.result() is None
        assert is_cancelled.is_set()

    _run(scenario())
