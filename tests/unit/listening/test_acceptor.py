"""Accept sockets: limits of those that are being prepared, and the end of an acceptor."""

import asyncio
import contextlib
import errno
import socket

import pytest

from leveret.listening import Acceptor, Client, Networks, bound_sockets
from leveret.listening import acceptor as acceptor_module

HOST = "127.0.0.1"
WITHIN_S = 60


class Everybody:
    """Admits all clients, and counts them."""

    def __init__(self) -> None:
        self.inside = 0

    def enter(self, host: str, descriptor: int) -> bool:
        self.inside += 1
        return True

    def leave(self, host: str) -> None:
        self.inside -= 1


class Greeter(asyncio.Protocol):
    """Says hello to a client, with its address."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._client.host.encode())
        transport.close()


def make(admission: Everybody, proxies: str = "") -> Acceptor:
    sockets = bound_sockets(HOST, 0)
    networks = Networks(proxies)
    return Acceptor(sockets, Greeter, admission, prepare_s=WITHIN_S, proxies=networks)


def test_port_that_is_taken_is_named() -> None:
    (taken,) = bound_sockets(HOST, 0)
    port = taken.getsockname()[1]
    with taken, pytest.raises(OSError, match=f"cannot listen on {HOST}:{port}: Address") as caught:
        bound_sockets(HOST, port)
    assert caught.value.errno == errno.EADDRINUSE


async def connect(acceptor: Acceptor) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*acceptor.sockets[0].getsockname()[:2])


def test_too_many_unfinished_clients_end_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "PREPARING_MAX", 3)

    async def scenario() -> None:
        acceptor = make(Everybody(), HOST)
        crowd = [await connect(acceptor) for _ in range(40)]
        async with asyncio.timeout(WITHIN_S):
            for reader, _ in crowd[:37]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            crowd[-1][1].write(b"PROXY TCP4 192.0.2.7 192.0.2.9 1 2\r\n")
            assert await crowd[-1][0].read() == b"192.0.2.7"
        await acceptor.stop()
        for _, writer in crowd:
            writer.close()

    asyncio.run(scenario())


def test_client_that_connected_before_the_stop_is_served() -> None:
    async def scenario() -> None:
        acceptor = make(Everybody())
        address = acceptor.sockets[0].getsockname()
        with socket.create_connection(address) as client:
            await acceptor.stop()  # the loop has not run since the client connected
            client.settimeout(WITHIN_S)
            assert await asyncio.to_thread(client.recv, 100) == HOST.encode()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    asyncio.run(scenario())


def test_unfinished_client_is_closed_at_the_stop_and_leaves() -> None:
    async def scenario() -> None:
        admission = Everybody()
        acceptor = make(admission, HOST)
        reader, writer = await connect(acceptor)
        await acceptor.stop()
        async with asyncio.timeout(WITHIN_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        assert admission.inside == 0

    asyncio.run(scenario())


def test_all_addresses_of_a_name_get_the_same_port() -> None:
    bound = bound_sockets("localhost", 0)
    assert len({each.getsockname()[1] for each in bound}) == 1
    for each in bound:
        each.close()
