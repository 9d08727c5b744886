"""AMQP over TLS: real clients, refusals, deadlines, and much data in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from contextlib import closing
from typing import Any

import aio_pika
import pika
import pytest

from leveret.perf.load import Load
from leveret.perf.run import run
from leveret.testing import broker
from leveret.testing.broker import RunningBroker
from tests.tls.certificates import Pair, TestAuthority

LARGE = bytes(range(256)) * 20_000  # 5 MB: many records, many frames, more than any buffer


def address(server: RunningBroker) -> tuple[str, int]:
    found = server.node.amqps_address
    assert found is not None
    return found


def parameters(server: RunningBroker, context: ssl.SSLContext) -> pika.ConnectionParameters:
    host, port = address(server)
    return pika.ConnectionParameters(host, port, ssl_options=pika.SSLOptions(context, "localhost"))


def hello(server: RunningBroker, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A socket that has agreed on TLS and said that it speaks AMQP."""
    plain = socket.create_connection(address(server), 10)
    try:
        secured = context.wrap_socket(plain, server_hostname="localhost")
    except BaseException:
        plain.close()
        raise
    secured.sendall(b"AMQP\x00\x00\x09\x01")
    return secured


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_pika_publishes_and_gets(authority: TestAuthority, server: Pair, loop: str) -> None:
    files: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    with broker(amqps_port=0, event_loop=loop, **files) as running:
        wanted = parameters(running, authority.client_context())
        with closing(pika.BlockingConnection(wanted)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("large")
            for body in (b"", b"small", LARGE):
                channel.basic_publish("", "large", body)
                assert channel.basic_get("large", auto_ack=True)[2] == body


def test_aio_pika_consumes(authority: TestAuthority, secured: RunningBroker) -> None:
    async def scenario() -> list[bytes]:
        host, port = address(secured)
        connection = await aio_pika.connect(
            host=host,
            port=port,
            ssl=True,
            ssl_context=authority.client_context(),
        )
        async with asyncio.timeout(60), connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("numbers", auto_delete=True)
            for number in range(100):
                wanted = aio_pika.Message(b"%d" % number)
                await channel.default_exchange.publish(wanted, "numbers")
            bodies = []
            async with queue.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    bodies.append(message.body)
                    if len(bodies) == 100:
                        break
            return bodies

    assert asyncio.run(scenario()) == [b"%d" % number for number in range(100)]


def test_load_generator_checks_the_certificate(
    authority: TestAuthority, stranger: TestAuthority, secured: RunningBroker
) -> None:
    host, port = address(secured)
    load = Load(host=host, port=port, tls=True, seconds=0, messages=2000, prefetch=100)
    result = run(Load(**{**vars(load), "tls_ca": str(authority.ca)}))
    assert (result.sent, result.received) == (2000, 2000)
    for changes in ({}, {"tls_ca": str(stranger.ca)}):
        with pytest.raises(ssl.SSLCertVerificationError):
            run(Load(**{**vars(load), **changes}))


def test_consumer_that_does_not_read_holds_up_nobody(
    authority: TestAuthority, secured: RunningBroker
) -> None:
    """Its credit is not renewed while its socket is full; its messages stay in the queue."""
    wanted = parameters(secured, authority.client_context())
    with (
        closing(pika.BlockingConnection(wanted)) as lazy,
        closing(pika.BlockingConnection(wanted)) as busy,
    ):
        publisher = busy.channel()
        publisher.confirm_delivery()
        publisher.queue_declare("flood", auto_delete=True)
        taken: list[bytes] = []
        consumer = lazy.channel()
        consumer.basic_consume("flood", lambda *given: taken.append(given[3]), auto_ack=True)
        for _ in range(20):
            publisher.basic_publish("", "flood", LARGE)
        left = publisher.queue_declare("flood", passive=True).method.message_count
        assert left > 0
        while len(taken) < 20:
            lazy.process_data_events(10)
        assert set(taken) == {LARGE}


def test_client_that_trusts_another_authority_does_not_connect(
    stranger: TestAuthority, secured: RunningBroker
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        hello(secured, stranger.client_context())


@pytest.mark.parametrize("least", ["1.2", "1.3"])
def test_old_versions_are_refused(authority: TestAuthority, server: Pair, least: str) -> None:
    versions = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    files: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    with broker(amqps_port=0, tls_version_min=least, **files) as running:
        for version in versions:
            context = authority.client_context()
            context.minimum_version = context.maximum_version = version
            if version is ssl.TLSVersion.TLSv1_2 and least == "1.3":
                with pytest.raises(ssl.SSLError):
                    hello(running, context)
            else:
                with hello(running, context) as client:
                    assert client.recv(1) == b"\x01"


def test_version_one_point_one_is_refused(authority: TestAuthority, secured: RunningBroker) -> None:
    context = authority.client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        hello(secured, context)


def test_peer_that_never_agrees_on_tls_is_dropped(server: Pair) -> None:
    files: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    with broker(amqps_port=0, handshake_timeout_ms=200, **files) as running:
        with socket.create_connection(address(running), 30) as silent:
            assert silent.recv(1) == b""


def test_plain_amqp_on_the_port_of_tls_is_dropped(secured: RunningBroker) -> None:
    with socket.create_connection(address(secured), 30) as plain:
        plain.sendall(b"AMQP\x00\x00\x09\x01")
        with contextlib.suppress(ConnectionResetError):
            while plain.recv(100):  # an alert of TLS, perhaps
                pass


def test_broker_stops_with_a_client_of_tls_connected(
    authority: TestAuthority, server: Pair
) -> None:
    files: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    with broker(amqps_port=0, **files) as running:
        connection = pika.BlockingConnection(parameters(running, authority.client_context()))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="shutdown"):
        connection.process_data_events(10)
