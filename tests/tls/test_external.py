"""EXTERNAL: clients log in with their certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pika
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from pika.credentials import ExternalCredentials

from leveret.testing import broker
from leveret.testing.broker import RunningBroker
from tests.tls.certificates import Pair, TestAuthority

SUBJECT = [(NameOID.ORGANIZATION_NAME, "Field"), (NameOID.COMMON_NAME, "hare")]
Refused = (pika.exceptions.AMQPConnectionError, ssl.SSLError)


@pytest.fixture(scope="module")
def hare(authority: TestAuthority) -> Pair:
    return authority.pair(SUBJECT, [x509.DNSName("hare.field"), x509.RFC822Name("hare@field")])


@contextmanager
def verifying(authority: TestAuthority, server: Pair, **changes: Any) -> Iterator[RunningBroker]:
    wanted: dict[str, Any] = {
        "amqps_port": 0,
        "tls_cert": server.cert,
        "tls_key": server.key,
        "tls_ca": authority.ca,
        "tls_verify": "required",
        **changes,
    }
    with broker(**wanted) as running:
        yield running


def connected(
    server: RunningBroker, context: ssl.SSLContext, credentials: Any = None
) -> pika.BlockingConnection:
    address = server.node.amqps_address
    assert address is not None
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            *address,
            ssl_options=pika.SSLOptions(context, "localhost"),
            credentials=credentials or ExternalCredentials(),
        )
    )


def user_of(server: RunningBroker) -> str:
    (connection,) = server.node.amqp.protocols
    assert connection.user is not None
    return connection.user.name


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("distinguished_name", "dns", "CN=hare,O=Field"),
        ("common_name", "dns", "hare"),
        ("subject_alternative_name", "dns", "hare.field"),
        ("subject_alternative_name", "email", "hare@field"),
    ],
)
def test_certificate_is_the_login(
    authority: TestAuthority, server: Pair, hare: Pair, source: str, kind: str, name: str
) -> None:
    names = {"tls_login_from": source, "tls_login_san_type": kind, "default_user": name}
    with verifying(authority, server, **names) as running:
        with closing(connected(running, authority.client_context(hare))) as connection:
            assert user_of(running) == name
            connection.channel().queue_declare("mine")


def test_certificate_of_nobody_is_refused(
    authority: TestAuthority, server: Pair, hare: Pair
) -> None:
    with verifying(authority, server) as running:
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connected(running, authority.client_context(hare))


def test_certificate_without_such_a_name_is_refused(
    authority: TestAuthority, server: Pair, hare: Pair
) -> None:
    names = {"tls_login_from": "subject_alternative_name", "tls_login_san_type": "uri"}
    with verifying(authority, server, **names) as running:
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connected(running, authority.client_context(hare))


def test_certificate_of_another_authority_or_none_does_not_connect(
    authority: TestAuthority, stranger: TestAuthority, server: Pair
) -> None:
    foreign = authority.client_context()
    pair = stranger.pair(SUBJECT)
    foreign.load_cert_chain(pair.cert, pair.key)
    names = {"tls_login_from": "common_name", "default_user": "hare"}
    with verifying(authority, server, **names) as running:
        for context in (foreign, authority.client_context()):
            with pytest.raises(Refused):
                connected(running, context)
        assert not running.node.amqp.protocols


def test_optional_certificate_is_needed_for_external_only(
    authority: TestAuthority, server: Pair, hare: Pair
) -> None:
    """A client without a certificate may log in with a password, but not by EXTERNAL."""
    names = {"tls_verify": "optional", "tls_login_from": "common_name", "default_user": "hare"}
    password = pika.PlainCredentials("hare", "guest")
    with verifying(authority, server, **names) as running:
        with closing(connected(running, authority.client_context(hare))):
            assert user_of(running) == "hare"
        with closing(connected(running, authority.client_context(), password)):
            pass
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connected(running, authority.client_context())


def test_authorities_are_read_again(
    authority: TestAuthority, stranger: TestAuthority, server: Pair, tmp_path: Any
) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(stranger.ca.read_bytes())
    pair = authority.pair(SUBJECT)
    names = {"tls_login_from": "common_name", "default_user": "hare", "tls_ca": trusted}
    with verifying(authority, server, **names) as running:
        with pytest.raises(Refused):
            connected(running, authority.client_context(pair))
        trusted.write_bytes(authority.ca.read_bytes())
        running.node.reload()
        connected(running, authority.client_context(pair)).close()


def test_certificates_do_not_count_where_they_are_not_verified(
    authority: TestAuthority, server: Pair, hare: Pair
) -> None:
    names = {"tls_verify": "none", "tls_login_from": "common_name", "default_user": "hare"}
    with verifying(authority, server, **names) as running:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connected(running, authority.client_context(hare))
        password = pika.PlainCredentials("hare", "guest")
        connected(running, authority.client_context(hare), password).close()
