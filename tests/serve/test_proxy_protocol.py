"""AMQP behind a TCP proxy: the PROXY header names the client, and only trusted peers send it."""

import asyncio
import socket

import aio_pika
import pika
import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.header_proxy import SIGNATURE, header_proxy, version_1, version_2
from tests.http.management import Api

CLIENT = "192.0.2.7"
PROXY = "127.0.0.9"
WITHIN_S = 60
AMQP = b"AMQP\x00\x00\x09\x01"
HEADERS = {
    "version 1": version_1(CLIENT),
    "version 2": version_2(CLIENT),
    "version 2 with extensions": version_2(CLIENT, extension=b"\x04\x00\x02xy"),
}


def connect(port: int, user: str = "shop", host: str = "127.0.0.1") -> pika.BlockingConnection:
    login = pika.PlainCredentials(user, user)
    return pika.BlockingConnection(pika.ConnectionParameters(host, port, credentials=login))


def add_shop(server: RunningBroker) -> None:
    """Create a user who may log in from other machines, too."""
    api = Api(server)
    assert api.put("users/shop", {"password": "shop", "tags": ""}) == 201
    assert api.put("permissions/%2F/shop", {"configure": ".*", "write": ".*", "read": ".*"}) == 201


def answer_to(server: RunningBroker, data: bytes, host: str = PROXY) -> bytes:
    """Return the first byte that the broker answers to a connection that begins like this."""
    with socket.create_connection(
        (server.host, server.port), WITHIN_S, source_address=(host, 0)
    ) as client:
        client.sendall(data)
        try:
            return client.recv(1)
        except ConnectionError:
            return b""


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_client_behind_a_proxy_is_known_by_its_own_address(header: bytes, loop: str) -> None:
    with broker(http=True, amqp_trusted_proxies="127.0.0.9, ::1", event_loop=loop) as server:
        add_shop(server)
        with header_proxy((server.host, server.port), header, PROXY) as port:
            connection = connect(port)
            channel = connection.channel()
            queue = channel.queue_declare("", exclusive=True).method.queue
            channel.basic_publish("", queue, b"x" * 100_000)
            assert channel.basic_get(queue, auto_ack=True)[2] == b"x" * 100_000
            (found,) = Api(server).get("connections")
            assert (found["peer_host"], found["peer_port"]) == (CLIENT, 4000)
            assert found["name"].startswith(f"{CLIENT}:4000 -> ")
            connection.close()
        events = Api(server).get("audit?limit=10")
        assert any(event["user"] == "shop" and event["peer"] == CLIENT for event in events)


def test_aio_pika_works_behind_a_proxy() -> None:
    async def scenario(port: int) -> bytes:
        connection = await aio_pika.connect(f"amqp://shop:shop@127.0.0.1:{port}/")
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), "q")
            message = await queue.get()
            await message.ack()
            return message.body

    with broker(http=True, amqp_trusted_proxies=PROXY) as server:
        add_shop(server)
        target = (server.host, server.port)
        with header_proxy(target, version_2("2001:db8::7"), PROXY) as port:
            assert asyncio.run(scenario(port)) == b"hello"


@pytest.mark.parametrize(
    "header",
    [
        version_1(CLIENT),
        version_2("2001:db8::7"),
        b"PROXY UNKNOWN\r\n",
        SIGNATURE + b"\x20\x00\x00\x00",
        SIGNATURE + b"\x21\x00\x00\x00",
    ],
    ids=["version 1", "IPv6", "unknown client", "the proxy itself", "unknown family"],
)
def test_guest_may_not_log_in_through_a_proxy_on_the_same_machine(header: bytes) -> None:
    with broker(amqp_trusted_proxies=PROXY) as server:
        with header_proxy((server.host, server.port), header, PROXY) as port:
            with pytest.raises(pika.exceptions.ProbableAuthenticationError):
                connect(port, "guest")
        connect(server.port, "guest").close()  # not through the proxy


def test_local_client_of_a_local_proxy_may_log_in_as_guest() -> None:
    with broker(amqp_trusted_proxies=PROXY) as server:
        target = (server.host, server.port)
        with header_proxy(target, version_1("127.0.0.1"), PROXY) as port:
            connect(port, "guest").close()


@pytest.mark.parametrize(
    "data",
    [
        AMQP + bytes(16),
        b"PROXY TCP4 nobody 192.0.2.9 1 2\r\n" + AMQP,
        b"PROXY TCP4 192.0.2.7 192.0.2.9 99999 2\r\n" + AMQP,
        b"PROXY TCP6 192.0.2.7 192.0.2.9 1 2\r\n" + AMQP,
        b"PROXY TCP4 192.0.2.7\r\n" + AMQP,
        b"PROXY TCP4 " + b"1" * 200,
        SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12) + AMQP,
        SIGNATURE + b"\x21\x11\x00\x04" + bytes(4) + AMQP,
        SIGNATURE + b"\x21\x11\xff\xff" + bytes(3000),
    ],
)
def test_trusted_proxy_must_send_a_valid_header(data: bytes) -> None:
    with broker(amqp_trusted_proxies=PROXY) as server:
        assert answer_to(server, data) == b""
        assert answer_to(server, version_1(CLIENT) + AMQP) == b"\x01"


def test_proxy_that_sends_no_header_is_disconnected_in_time() -> None:
    with broker(amqp_trusted_proxies=PROXY, handshake_timeout_ms=100) as server:
        assert answer_to(server, version_1(CLIENT)[:9]) == b""


@pytest.mark.parametrize("proxies", ["", PROXY])
def test_peer_that_is_not_trusted_may_not_send_a_header(proxies: str) -> None:
    with broker(amqp_trusted_proxies=proxies) as server:
        answer = answer_to(server, version_1(CLIENT) + AMQP, "127.0.0.2")
        assert answer in (b"", b"A")  # AMQP: the broker says which protocol it speaks
