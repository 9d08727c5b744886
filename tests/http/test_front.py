"""The HTTP front on a real socket: early requests wait, stop lets requests finish."""

import asyncio
import contextlib
import signal
import socket

import pytest

from leveret.errors import LeadLostError
from leveret.http.transport import http_connection, server
from leveret.http.transport.front import HttpFront
from leveret.http.transport.http_connection import HEAD_BYTES_MAX
from tests.http.fake_node import FakeNode

GET_HEALTH = b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n"


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        return head + await reader.readexactly(length)


def test_request_sent_before_the_front_runs_is_answered() -> None:
    async def scenario() -> bytes:
        front = HttpFront(FakeNode())
        reader, writer = await asyncio.open_connection(*front.listen("127.0.0.1", 0))
        writer.write(GET_HEALTH)
        async with asyncio.TaskGroup() as group:
            group.create_task(front.run())
            found = await answer(reader)
            front.stop()
        writer.close()
        return found

    found = asyncio.run(scenario())
    assert found.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nserver: Leveret\r\n" in found
    assert b"\r\ndate: " in found


def test_front_stops_with_an_idle_connection_open_and_leaves_the_signals_alone() -> None:
    async def scenario() -> None:
        front = HttpFront(FakeNode())
        address = front.listen("127.0.0.1", 0)
        handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(front.run())
            reader, writer = await asyncio.open_connection(*address)
            writer.write(GET_HEALTH)
            await answer(reader)
            now = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
            assert now == handlers
            front.stop()
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)

    asyncio.run(scenario())


def test_front_that_is_stopped_before_it_runs_ends_and_closes_its_socket() -> None:
    async def scenario() -> None:
        front = HttpFront(FakeNode())
        address = front.listen("127.0.0.1", 0)
        front.stop()
        async with asyncio.timeout(60):
            await front.run()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)

    asyncio.run(scenario())


def test_port_in_use_raises_os_error() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            with pytest.raises(OSError, match="in use"):
                HttpFront(FakeNode()).listen("127.0.0.1", taken.getsockname()[1])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/health HTTP/1.1\r\nHost: x\r\nX-Endless: ",
        b"GET /api/health?",
        b"GET /api/health HTTP/1.1\r\n" + b"X-Another: y\r\n" * 1000,
    ],
)
def test_head_without_an_end_is_refused(head: bytes) -> None:
    async def scenario() -> bytes:
        front = HttpFront(FakeNode())
        address = front.listen("127.0.0.1", 0)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(front.run())
            reader, writer = await asyncio.open_connection(*address)
            writer.write(head + b"x" * HEAD_BYTES_MAX)
            found = await answer(reader)
            assert await reader.read() == b""
            writer.close()
            front.stop()
        return found

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 400 ")


def test_head_may_come_in_pieces_before_a_long_body() -> None:
    async def scenario() -> list[bytes]:
        front = HttpFront(FakeNode())
        address = front.listen("127.0.0.1", 0)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(front.run())
            reader, writer = await asyncio.open_connection(*address)
            found = []
            for _ in range(2):
                body = b"y" * (2 * HEAD_BYTES_MAX)
                length = f"Content-Length: {len(body)}\r\n\r\n".encode()
                writer.write(GET_HEALTH[:-2] + b"X-Half")
                await writer.drain()
                writer.write(b": z\r\n" + length + body)
                found.append(await answer(reader))
            writer.close()
            front.stop()
        return found

    for found in asyncio.run(scenario()):
        assert found.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        GET_HEALTH[:10],
        b"POST /api/health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
        b"POST /enqueue HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
        GET_HEALTH,
    ],
)
def test_silent_client_is_disconnected(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_KEEP_ALIVE_S", 0.2)
    monkeypatch.setattr(http_connection, "HEAD_S", 0.2)

    async def scenario() -> None:
        front = HttpFront(FakeNode())
        reader, writer = await asyncio.open_connection(*front.listen("127.0.0.1", 0))
        writer.write(sent)
        async with asyncio.TaskGroup() as group:
            group.create_task(front.run())
            async with asyncio.timeout(60):
                await reader.read()  # the connection ends while the front still runs
            front.stop()
        writer.close()

    asyncio.run(scenario())


class _Deposed(FakeNode):
    """A node that has just lost the lead of its cluster."""

    async def tellable(self) -> None:
        raise LeadLostError("another node leads now: try again")


def test_node_that_lost_the_lead_answers_reads_and_closes_the_connections_of_changes() -> None:
    """503 would tell the client of a change that nothing was changed. That is not known."""

    async def scenario() -> list[bytes]:
        front = HttpFront(_Deposed())
        address = front.listen("127.0.0.1", 0)
        found = []
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(front.run())
            for line in ("GET /api/health", "HEAD /api/health", "PUT /api/x", "POST /ack"):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(f"{line} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                if line.startswith("GET"):
                    found.append(await answer(reader))
                elif line.startswith("HEAD"):
                    found.append(await reader.readuntil(b"\r\n\r\n"))
                else:
                    with contextlib.suppress(ConnectionResetError):
                        assert await reader.read() == b""
                writer.close()
            front.stop()
        return found

    get, head = asyncio.run(scenario())
    assert get.startswith(b"HTTP/1.1 503 ")
    assert b"another node leads now" in get
    assert head.startswith(b"HTTP/1.1 503 ")
