"""The HTTP API over TLS."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from contextlib import closing
from http.client import HTTPSConnection
from typing import Any

import pika
import pytest

from leveret.testing.broker import RunningBroker
from tests.http.asking import ask
from tests.tls.certificates import TestAuthority

GUEST = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}


def asked(server: RunningBroker, context: ssl.SSLContext, path: str) -> int:
    assert server.node.https_address is not None
    client = HTTPSConnection("localhost", server.node.https_address[1], timeout=60, context=context)
    with closing(client):
        client.request("GET", path, headers=GUEST)
        answer = client.getresponse()
        answer.read()
        return answer.status


def test_request_is_answered(authority: TestAuthority, secured: RunningBroker) -> None:
    context = authority.client_context()
    assert asked(secured, context, "/api/health") == 200
    assert asked(secured, context, "/api/queues") == 200
    assert asked(secured, context, "/api/nothing") == 404


def test_client_that_trusts_another_authority_does_not_ask(
    stranger: TestAuthority, secured: RunningBroker
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        asked(secured, stranger.client_context(), "/api/health")


def test_plain_port_still_answers(secured: RunningBroker) -> None:
    with socket.create_connection((secured.host, secured.http_port), 30) as client:
        client.sendall(b"GET /api/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.recv(15) == b"HTTP/1.1 200 OK"


def test_management_shows_listeners_connections_and_certificates_that_end(
    authority: TestAuthority, secured: RunningBroker
) -> None:
    protocols = {each["protocol"] for each in found(secured, "/api/overview")["listeners"]}
    assert protocols == {"amqp", "amqp/ssl", "http", "https"}
    assert secured.node.amqps_address is not None
    client = pika.BlockingConnection(
        pika.ConnectionParameters(
            *secured.node.amqps_address,
            ssl_options=pika.SSLOptions(authority.client_context(), "localhost"),
        )
    )
    (shown,) = [c for c in found(secured, "/api/connections") if c["ssl"]]
    assert shown["ssl_protocol"].startswith("tlsv1.")
    assert shown["ssl_cipher"]
    client.close()
    assert ask(secured, "GET", "/api/health/checks/certificate-expiration/1/days")[0] == 200
    status, body = ask(secured, "GET", "/api/health/checks/certificate-expiration/900/years")
    assert status == 503
    assert len(body["expired"]) == 1


def found(server: RunningBroker, path: str) -> Any:
    status, body = ask(server, "GET", path)
    assert status == 200
    return body
