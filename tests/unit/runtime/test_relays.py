"""Relayed clients that do not read, or do not end: they keep no place of a node."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from leveret.cluster.relay import RelayHead
from leveret.listening import Client, Networks
from leveret.runtime import relays
from leveret.runtime.public_listeners import PublicListeners
from leveret.runtime.relays import ClientEnd, Relayed, Relays

MEGABYTE = 1_000_000
SOON_S = 0.05

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _run(scenario: Coroutine[Any, Any, None]) -> list[dict[str, Any]]:
    """Run a scenario on the event loop that nodes use. Return what reached the loop's handler."""
    faults: list[dict[str, Any]] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, fault: faults.append(fault))
        async with asyncio.timeout(60):
            await scenario

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(watched())
    return faults


class _Paused(asyncio.Protocol):
    """A fresh connection to the leader, which nobody reads yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).pause_reading()


@contextlib.asynccontextmanager
async def _node(leader: Handler) -> AsyncIterator[tuple[PublicListeners, tuple[str, int]]]:
    """Run a node that relays its clients to a leader. Yield it and its address."""
    led: list[asyncio.Task[None]] = []

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        led.append(task)
        await leader(reader, writer)

    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    leader_address = server.sockets[0].getsockname()

    async def find(head: RelayHead, client: Client) -> asyncio.BaseProtocol | Relayed:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(_Paused, *leader_address)
        return transport, b""

    listeners = PublicListeners(find, Relays(), 0, Networks(""))
    address = listeners.listen("amqp", "127.0.0.1", 0)
    async with server:
        try:
            yield listeners, address
        finally:
            await listeners.stop()
            await asyncio.gather(*led)


async def _connect(address: tuple[str, int]) -> socket.socket:
    """Connect a client that reads only if it is told to, with a small buffer in the kernel."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, address)
    return client


async def _until_all_are_gone(listeners: PublicListeners) -> None:
    while listeners.relayed_count():  # noqa: ASYNC110  nothing tells of it
        await asyncio.sleep(0.01)


def test_client_that_does_not_take_the_rest_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relays, "END_S", SOON_S)
    monkeypatch.setattr(relays, "BUFFER_BYTES", 100 * MEGABYTE)  # the node takes the whole answer

    async def scenario() -> None:
        arrived = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set()
            writer.write(bytes(20 * MEGABYTE))
            writer.close()

        async with _node(answer) as (listeners, address):
            client = await _connect(address)
            await arrived.wait()
            await _until_all_are_gone(listeners)
            client.close()

    assert _run(scenario()) == []


def test_client_that_does_not_end_its_side_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relays, "END_S", SOON_S)

    async def scenario() -> None:
        async def end_one_side(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"bye")
            writer.write_eof()
            await reader.read()
            writer.close()

        async with _node(end_one_side) as (listeners, address):
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b"bye"
            await _until_all_are_gone(listeners)
            writer.close()

    assert _run(scenario()) == []


@pytest.mark.parametrize("ends_its_side", [False, True])
def test_client_that_reads_nothing_is_disconnected_although_the_leader_is_not_read(
    monkeypatch: pytest.MonkeyPatch, ends_its_side: bool
) -> None:
    monkeypatch.setattr(relays, "UNREAD_S", SOON_S)

    async def scenario() -> None:
        arrived = asyncio.Event()

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set()
            writer.write(bytes(200 * MEGABYTE))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.transport.abort()

        async with _node(flood) as (listeners, address):
            client = await _connect(address)
            if ends_its_side:
                client.shutdown(socket.SHUT_WR)
            await arrived.wait()
            await _until_all_are_gone(listeners)
            client.close()

    assert _run(scenario()) == []


def test_client_that_is_gone_after_both_sides_ended_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relays, "END_S", 600.0)

    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.write(bytes(3 * MEGABYTE))
            writer.close()

        async with _node(answer) as (listeners, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write_eof()
            assert len(await reader.read()) == 3 * MEGABYTE
            writer.close()
            await _until_all_are_gone(listeners)

    assert _run(scenario()) == []


def test_longest_ending_client_makes_room_for_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "END_S", 600.0)
    monkeypatch.setattr(relays, "ENDING_MAX", 2)

    async def scenario() -> None:
        gone: asyncio.Queue[int] = asyncio.Queue()
        numbers = iter(range(3))

        async def end_one_side(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = next(numbers)
            writer.write_eof()
            await reader.read()
            gone.put_nowait(number)
            writer.close()

        async with _node(end_one_side) as (listeners, address):
            clients = []
            for _ in range(3):
                reader, writer = await asyncio.open_connection(*address)
                assert await reader.read() == b""
                clients.append(writer)
            assert await gone.get() == 0
            assert listeners.relayed_count() == 2
            for writer in clients:
                writer.close()
            await _until_all_are_gone(listeners)

    assert _run(scenario()) == []


class _SlowReader(asyncio.Transport):
    """A connection whose peer takes one byte between two looks, and then nothing more."""

    def __init__(self, aborted: asyncio.Event) -> None:
        super().__init__()
        self._left = iter((9, 8, 7, 7))
        self._aborted = aborted
        self.looks = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        return next(self._left)

    def abort(self) -> None:
        self._aborted.set()


def test_client_that_reads_slowly_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "UNREAD_S", 0.001)

    async def scenario() -> None:
        aborted = asyncio.Event()
        transport = _SlowReader(aborted)
        end = ClientEnd()
        end.connection_made(transport)
        end.pause_writing()
        await aborted.wait()
        assert transport.looks == 4, "the client was disconnected although it had read"

    assert _run(scenario()) == []
