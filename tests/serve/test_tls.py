"""`leveret serve` with TLS: the ready line, SIGHUP, and certificates that cannot be used."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pika
import pytest

from tests.tls.certificates import Pair, TestAuthority

SERVE = [sys.executable, "-m", "leveret", "serve", "--amqp-port", "0", "--http-port", "0"]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
READY = re.compile(r"leveret ready amqp=\S+:\d+ http=\S+:\d+ amqps=(\S+):(\d+) https=(\S+):(\d+)\n")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("authority"))


def shown_name(authority: TestAuthority, host: str, port: int) -> str:
    context = authority.client_context()
    context.check_hostname = False
    with closing(socket.create_connection((host, port), 10)) as plain:
        with context.wrap_socket(plain) as secured:
            found = secured.getpeercert()
    assert found is not None
    return dict(part[0] for part in found["subject"])["commonName"]  # type: ignore[misc]


def test_ready_line_names_the_ports_of_tls_and_hangup_reads_certificates(
    tmp_path: Path, authority: TestAuthority
) -> None:
    old, new = authority.server("old"), authority.server("new")
    files = Pair(tmp_path / "cert.pem", tmp_path / "key.pem")
    shutil.copy(old.cert, files.cert)
    shutil.copy(old.key, files.key)
    flags = ["--tls-cert", str(files.cert), "--tls-key", str(files.key), "--data", str(tmp_path)]
    ports = ["--amqps-port", "0", "--https-port", "0"]
    with subprocess.Popen(
        [*SERVE, *flags, *ports],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            ready = READY.fullmatch(process.stdout.readline())
            assert ready is not None
            for host, port in ((ready[1], ready[2]), (ready[3], ready[4])):
                assert shown_name(authority, host, int(port)) == "old"
            shutil.copy(new.cert, files.cert)
            shutil.copy(new.key, files.key)
            process.send_signal(signal.SIGHUP)
            while "certificates were reloaded" not in process.stderr.readline():
                pass
            for host, port in ((ready[1], ready[2]), (ready[3], ready[4])):
                assert shown_name(authority, host, int(port)) == "new"
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no socket here takes both kinds")
@pytest.mark.parametrize(
    ("host", "loop"), [("::", "uvloop"), ("::", "asyncio"), ("0::0", "uvloop")]
)
def test_all_addresses_are_those_of_both_kinds(
    tmp_path: Path, authority: TestAuthority, host: str, loop: str
) -> None:
    pair = authority.server()
    flags = ["--host", host, "--default-pass", "secret", "--event-loop", loop]
    files = ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--data", str(tmp_path)]
    ports = ["--amqps-port", "0", "--https-port", "0"]
    with subprocess.Popen(
        [*SERVE, *flags, *files, *ports], stdout=subprocess.PIPE, text=True, env=ENV
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            amqp, http, amqps, https = (int(port) for port in re.findall(r"=\[::\]:(\d+)", ready))
            for client in ("127.0.0.1", "::1"):
                assert shown_name(authority, client, amqps) == "localhost"
                assert shown_name(authority, client, https) == "localhost"
                assert peer_host(client, amqp, http) == client
        finally:
            process.kill()


def peer_host(host: str, amqp_port: int, http_port: int) -> str:
    """Return the host of a client, as the node sees it, for a connection to this address."""
    login = pika.PlainCredentials("guest", "secret")
    with pika.BlockingConnection(pika.ConnectionParameters(host, amqp_port, "/", login)) as client:
        client.channel()  # answered: the node knows of the connection
        given = base64.b64encode(b"guest:secret").decode()
        with closing(HTTPConnection(host, http_port, timeout=60)) as http:
            http.request("GET", "/api/connections", headers={"Authorization": f"Basic {given}"})
            (found,) = json.loads(http.getresponse().read())
    assert found["name"].count("[") == (2 if ":" in host else 0)
    shown: str = found["peer_host"]
    return shown


def test_certificate_that_is_missing_is_one_line_and_exit_code_one(tmp_path: Path) -> None:
    flags = ["--amqps-port", "0", "--tls-cert", str(tmp_path / "absent.pem")]
    done = subprocess.run(
        [*SERVE, *flags, "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=ENV,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "absent.pem" in done.stderr
