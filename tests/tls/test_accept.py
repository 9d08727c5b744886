"""TLS behind a proxy, and clients that never finish their TLS handshake."""

from __future__ import annotations

import logging
import queue
import socket
import ssl
from typing import Any

import pika
import pytest

from leveret.testing import broker
from tests.header_proxy import header_proxy, version_1, version_2
from tests.http.management import Api
from tests.tls.certificates import Pair, TestAuthority

CLIENT = "192.0.2.7"
PROXY = "127.0.0.9"


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("header", [version_1(CLIENT), version_2(CLIENT)], ids=["1", "2"])
def test_header_comes_before_tls(
    authority: TestAuthority, server: Pair, header: bytes, loop: str
) -> None:
    settings: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    settings |= {"amqps_port": 0, "amqp_trusted_proxies": PROXY, "event_loop": loop}
    with broker(http=True, **settings) as running:
        api = Api(running)
        assert api.put("users/shop", {"password": "shop", "tags": ""}) == 201
        given = {"configure": ".*", "write": ".*", "read": ".*"}
        assert api.put("permissions/%2F/shop", given) == 201
        assert running.node.amqps_address is not None
        with header_proxy(running.node.amqps_address, header, PROXY) as port:
            context = ssl.create_default_context(cafile=authority.ca)
            connection = pika.BlockingConnection(
                pika.ConnectionParameters(
                    "127.0.0.1",
                    port,
                    ssl_options=pika.SSLOptions(context, "localhost"),
                    credentials=pika.PlainCredentials("shop", "shop"),
                )
            )
            (found,) = api.get("connections")
            assert (found["peer_host"], found["ssl"]) == (CLIENT, True)
            connection.close()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("port", ["amqps", "https"])
def test_clients_in_their_handshake_are_counted(server: Pair, loop: str, port: str) -> None:
    settings: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key, "event_loop": loop}
    settings |= {"unopened_per_address_max": 2, "http_connections_per_address_max": 2}
    with broker(http=True, amqps_port=0, https_port=0, **settings) as running:
        address = getattr(running.node, f"{port}_address")
        crowd = [
            socket.create_connection(address, 60, source_address=("127.0.0.2", 0)) for _ in range(3)
        ]
        try:
            assert crowd[2].recv(1) == b""
        except ConnectionError:
            pass
        for each in crowd:
            each.close()
        with socket.create_connection(address, 60) as other:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with context.wrap_socket(other) as secured:
                assert secured.version() in ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "the client speaks TLS on amqp_port: turn TLS off"),
        (b"GET / HTTP/1.1\r\n", "the client speaks HTTP on amqp_port: connect it to http_port"),
        (b"AMQP\x00\x01\x00\x00", "the client speaks another version of AMQP"),
        (b"nobody knows", "the client does not speak AMQP 0-9-1"),
    ],
)
def test_client_of_another_protocol_is_logged_once(
    caplog: pytest.LogCaptureFixture, first: bytes, reason: str
) -> None:
    with broker() as running:
        for _ in range(3):
            with socket.create_connection((running.host, running.port), 60) as client:
                client.sendall(first)
                while client.recv(100):
                    pass
    (line,) = [one.message for one in caplog.records if "a connection was refused" in one.message]
    assert reason in line


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_failed_handshake_is_logged_with_its_reason(server: Pair, loop: str) -> None:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    handler = logging.Handler()
    handler.emit = lambda record: lines.put(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("leveret.listening")
    logger.addHandler(handler)
    settings: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key, "event_loop": loop}
    try:
        with broker(amqps_port=0, **settings) as running:
            assert running.node.amqps_address is not None
            with socket.create_connection(running.node.amqps_address, 60) as client:
                client.sendall(b"\x16AMQP\x00\x00\x09\x01")
                while "failed: the client does not speak TLS" not in lines.get(timeout=60):
                    pass

    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_client_without_tls_is_told_the_right_port(
    server: Pair, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key, "event_loop": loop}
    with broker(http=True, amqps_port=0, https_port=0, **settings) as running:
        assert running.node.amqps_address is not None
        assert running.node.https_address is not None
        text = "without TLS on https_port: turn TLS on in the client, or connect it to http_port"
        answer = told(running.node.https_address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(f"the client speaks HTTP {text}\n".encode())
        assert told(running.node.amqps_address, b"AMQP\x00\x00\x09\x01") == b""
        assert told(running.node.amqps_address, b"PING\r\n").startswith(b"-ERR the client speaks R")
    logged = [each.message for each in caplog.records if "refused" in each.message]
    assert len(logged) == 3
    assert "speaks AMQP without TLS on amqps_port: turn TLS on in the client" in logged[1]


def told(address: tuple[str, int], data: bytes) -> bytes:
    """Send bytes, and return the answer up to its end."""
    with socket.create_connection(address, 60) as client:
        client.sendall(data)
        answer = b""
        while piece := client.recv(4096):
            answer += piece
        return answer
