"""Certificates that change while the broker runs."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pika
import pytest
from cryptography.hazmat.primitives import serialization

from leveret.config.option import Secret
from leveret.config.settings import Settings
from leveret.errors import ConfigError
from leveret.runtime.certificates import LOOK_S, Certificates
from leveret.testing import broker
from tests.tls.certificates import Pair, TestAuthority


@pytest.fixture
def files(tmp_path: Path, server: Pair) -> Pair:
    """The files of a broker, which a test may change."""
    mine = Pair(tmp_path / "cert.pem", tmp_path / "key.pem")
    put(server, mine)
    return mine


def put(source: Pair, target: Pair) -> None:
    shutil.copy(source.cert, target.cert)
    shutil.copy(source.key, target.key)


class Watch:
    """A clock for looks at the files."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def shown_name(authority: TestAuthority, address: tuple[str, int]) -> str:
    """The common name in the certificate that a new connection is shown."""
    context = authority.client_context()
    context.check_hostname = False
    with closing(socket.create_connection(address, 60)) as plain:
        with context.wrap_socket(plain, server_hostname="any") as secured:
            found = secured.getpeercert()
    assert found is not None
    return dict(part[0] for part in found["subject"])["commonName"]  # type: ignore[misc]


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def listening(files: Pair, watch: Watch) -> Iterator[tuple[Certificates, tuple[str, int]]]:
    """Contexts of these files, behind a socket that only shakes hands."""
    settings = Settings(amqps_port=0, tls_cert=files.cert, tls_key=files.key)
    certificates = Certificates(settings, watch)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with closing(peer):
                    try:
                        certificates.amqp.wrap_socket(peer, server_side=True).close()
                    except (ssl.SSLError, OSError):
                        continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield certificates, listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(60)


Listening = tuple[Certificates, tuple[str, int]]


def test_new_files_are_seen_by_the_next_handshake_that_looks(
    authority: TestAuthority, files: Pair, watch: Watch, listening: Listening
) -> None:
    _, address = listening
    assert shown_name(authority, address) == "localhost"
    put(authority.server("renewed"), files)
    assert shown_name(authority, address) == "localhost", "it looks once in a while only"
    watch.now_s += LOOK_S
    assert shown_name(authority, address) == "renewed"


def test_broken_file_keeps_the_old_certificate_and_is_reported_once(
    authority: TestAuthority,
    files: Pair,
    watch: Watch,
    listening: Listening,
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificates, address = listening
    assert certificates.fault == ""
    new = authority.server("renewed")
    shutil.copy(new.cert, files.cert)  # the key is still the old one
    for _ in range(3):
        watch.now_s += LOOK_S
        assert shown_name(authority, address) == "localhost"
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert str(files.cert) in errors[0].getMessage()
    assert certificates.fault == errors[0].getMessage()
    shutil.copy(new.key, files.key)
    watch.now_s += LOOK_S
    assert shown_name(authority, address) == "renewed"
    assert certificates.fault == ""


def test_files_that_vanish_change_nothing(
    authority: TestAuthority, files: Pair, watch: Watch, listening: Listening
) -> None:
    certificates, address = listening
    files.cert.unlink()
    watch.now_s += LOOK_S
    assert shown_name(authority, address) == "localhost"
    assert not certificates.reload()


def test_old_connection_lives_on_when_a_new_one_sees_the_new_certificate(
    authority: TestAuthority, files: Pair
) -> None:
    with broker(amqps_port=0, tls_cert=files.cert, tls_key=files.key) as server:
        address = server.node.amqps_address
        assert address is not None
        options = pika.SSLOptions(authority.client_context(), "localhost")
        wanted = pika.ConnectionParameters(*address, ssl_options=options)
        with closing(pika.BlockingConnection(wanted)) as old:
            channel = old.channel()
            channel.queue_declare("q")
            put(authority.server("renewed"), files)
            server.node.reload()
            assert shown_name(authority, address) == "renewed"
            channel.basic_publish("", "q", b"still here")
            assert channel.basic_get("q", auto_ack=True)[2] == b"still here"


def test_key_with_a_password(server: Pair, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(server.key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hare"),
        )
    )
    settings = Settings(amqps_port=0, tls_cert=server.cert, tls_key=locked)
    for password in ("", "fox"):
        with pytest.raises(ConfigError):
            Certificates(replace(settings, tls_key_pass=Secret(password)))
    Certificates(replace(settings, tls_key_pass=Secret("hare")))


def test_files_that_cannot_be_used_are_named_with_the_reason(
    server: Pair, authority: TestAuthority
) -> None:
    absent = server.cert.parent / "absent"
    other = authority.server()
    for cert, key, text in (
        (
            server.cert,
            other.key,
            f"^tls_cert: {server.cert}, .*: the private key does not belong to the cert",
        ),
        (
            absent,
            server.key,
            f"^tls_cert: {absent}: cannot be used for TLS: No such file or directory",
        ),
        (
            server.cert,
            None,
            f"^tls_cert: {server.cert}: .*: a file has no certificate or no private key",
        ),
    ):
        with pytest.raises(ConfigError, match=text):
            Certificates(Settings(amqps_port=0, tls_cert=cert, tls_key=key))


@pytest.mark.parametrize(
    ("today", "text"),
    [
        ("2019-12-31", "is not valid yet"),
        ("2020-01-02", ""),
        ("2099-12-17", ""),
        ("2099-12-19", "expires soon"),
        ("2100-01-02", "has expired"),
    ],
)
def test_log_warns_of_the_dates_of_a_certificate_once_a_day(
    files: Pair, watch: Watch, caplog: pytest.LogCaptureFixture, today: str, text: str
) -> None:
    settings = Settings(amqps_port=0, tls_cert=files.cert, tls_key=files.key)
    now_ms = int(datetime.fromisoformat(f"{today}T00:00:00Z").timestamp()) * 1000
    certificates = Certificates(settings, watch, lambda: now_ms)
    for _ in range(50):  # an hour apart
        watch.now_s += 3600
        certificates.dialing()
    found = [record.message for record in caplog.records]
    assert len(found) == (3 if text else 0)
    assert all(f"the certificate {files.cert} {text}" in message for message in found)


def test_a_certificate_that_expires_while_the_node_runs_is_a_fault(
    files: Pair, watch: Watch
) -> None:
    end_ms = int(datetime.fromisoformat("2100-01-01T00:00:00Z").timestamp()) * 1000
    now_ms = end_ms - 1000
    settings = Settings(amqps_port=0, tls_cert=files.cert, tls_key=files.key)
    certificates = Certificates(settings, watch, lambda: now_ms)
    assert certificates.fault == ""
    now_ms = end_ms
    assert certificates.fault == (
        f"the certificate {files.cert} has expired, and clients refuse it: renew it"
    )
