"""A load over TLS, through a relay with a self-signed certificate in front of the broker."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.perf.client import Client, stream_arguments
from leveret.perf.load import Load
from leveret.perf.protocol import Parser
from leveret.perf.run import run
from leveret.testing import broker


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate and its key that no machine trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1".split()
    subprocess.run(
        [*command, "-keyout", f"{path}.key", "-out", f"{path}.crt"], check=True, capture_output=True
    )
    path.write_text(Path(f"{path}.key").read_text() + Path(f"{path}.crt").read_text())
    return path


@contextlib.contextmanager
def relay(certificate: Path, port: int) -> Iterator[int]:
    """Relay TLS to the plain `port`. Yield the port to connect to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    thread = threading.Thread(target=_join, args=(context, peer, port))
                    threads.append(thread)
                    thread.start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join(60)


def _join(context: ssl.SSLContext, peer: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError), context.wrap_socket(peer, server_side=True) as secured:
        with socket.create_connection(("127.0.0.1", port)) as plain:
            back = threading.Thread(target=_pump, args=(plain, secured))
            back.start()
            _pump(secured, plain)
            back.join(60)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_load_goes_through_tls(certificate: Path) -> None:
    with broker() as server, relay(certificate, server.port) as port:
        load = Load(port=port, tls=True, tls_verify=False, seconds=0, messages=100, prefetch=10)
        result = run(load)
    assert (result.sent, result.received) == (100, 100)


def test_untrusted_certificate_is_refused(certificate: Path) -> None:
    with broker() as url, relay(certificate, url.port) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            Client(Load(port=port, tls=True), Parser())


@pytest.mark.parametrize(("given", "sent"), [("first", "first"), ("17", 17), ("1h", "1h")])
def test_stream_offset_is_a_word_an_age_or_a_number(given: str, sent: object) -> None:
    assert stream_arguments(given) == {"x-stream-offset": sent}
