"""`leveret serve` as a process: ready line, both ports, signals, and a port that is taken."""

import base64
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import IO

import pika
import pytest

from tests.compat import wire
from tests.compat.client import Handshake, connect, is_method

READY = re.compile(
    r"leveret ready amqp=(127\.0\.0\.1|\[::1\]):(\d+) http=(127\.0\.0\.1|\[::1\]):(\d+)\n"
)


@contextmanager
def serving(
    data: Path, *flags: str, stderr: IO[str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    command = [sys.executable, "-m", "leveret", "serve", "--data", str(data)]
    ports = ["--amqp-port", "0", "--http-port", "0"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    with subprocess.Popen(
        [*command, *ports, *flags], stdout=subprocess.PIPE, stderr=stderr, text=True, env=clean
    ) as process:
        try:
            assert process.stdout is not None
            ready = READY.fullmatch(process.stdout.readline())
            assert ready is not None
            yield process, ready
        finally:
            process.kill()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_ready_line_names_two_ports_that_answer(tmp_path: Path, loop: str) -> None:
    with serving(tmp_path, "--event-loop", loop) as (_, ready):
        with socket.create_connection((ready[1], int(ready[2])), timeout=60) as client:
            client.sendall(b"AMQP\x00\x00\x09\x01")
            assert client.recv(1) == b"\x01"
        connection = HTTPConnection(ready[3], int(ready[4]), timeout=60)
        connection.request("GET", "/api/health")
        assert connection.getresponse().status == 200
        connection.close()


def test_clients_come_by_ipv6_as_well(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "::1") as (_, ready):
        parameters = pika.ConnectionParameters("::1", int(ready[2]))
        with pika.BlockingConnection(parameters) as client:
            client.channel()  # answered: the node knows of the connection
            connection = HTTPConnection("::1", int(ready[4]), timeout=60)
            login = base64.b64encode(b"guest:guest").decode()
            connection.request(
                "GET", "/api/connections", headers={"Authorization": f"Basic {login}"}
            )
            (found,) = json.loads(connection.getresponse().read())
            connection.close()
    assert (found["peer_host"], found["host"], found["port"]) == ("::1", "::1", int(ready[2]))
    assert found["name"] == f"[::1]:{found['peer_port']} -> [::1]:{ready[2]}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_and_the_exit_code_is_zero(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as (process, _):
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""


# Sends itself a signal when a module of the node is about to be imported.
STRUCK = """
import os, sys
class Finder:
    def find_spec(name, path, target=None):
        if name == "leveret.runtime.node":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder)
from leveret.cli.main import main
sys.exit(main(["serve", "--data", {data!r}, "--amqp-port", "0", "--http-port", "0"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_anything_has_begun_ends_it_quietly(
    tmp_path: Path, number: signal.Signals
) -> None:
    code = STRUCK.format(number=int(number), data=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr


def test_news_of_files_during_the_start_does_not_end_it(tmp_path: Path) -> None:
    code = STRUCK.format(number=int(signal.SIGHUP), data=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        assert READY.fullmatch(node.stdout.readline())
        node.send_signal(signal.SIGHUP)
        node.terminate()
        assert node.wait(timeout=60) == 0


def test_a_node_runs_and_stops_without_standard_files(tmp_path: Path) -> None:
    """A socket with one of their numbers makes the event loop abort."""
    assert run_to_its_end(tmp_path, 'exec "$@" <&- >&-', subprocess.DEVNULL) == 0


def test_a_node_runs_and_stops_though_nobody_reads_its_ready_line(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        assert run_to_its_end(tmp_path, 'exec "$@"', write_end) == 0
    finally:
        os.close(write_end)


def run_to_its_end(data: Path, script: str, stdout: int) -> int:
    """Start a node, stop it when it says that it runs; the exit code."""
    node = [sys.executable, "-m", "leveret", "serve", "--data", str(data)]
    command = ["sh", "-c", script, "sh", *node, "--amqp-port", "0", "--http-port", "0"]
    with subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert any("the node has started" in line for line in process.stderr)
            process.terminate()
            rest = process.stderr.read()
            assert rest.endswith('msg="the node has stopped"\n')
            return process.wait(timeout=60)
        finally:
            process.kill()


def test_port_that_is_taken_is_one_line_and_exit_code_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for flag, other in (("--amqp-port", "--http-port"), ("--http-port", "--amqp-port")):
            ports = [flag, port, other, "0"]
            done = subprocess.run(
                [sys.executable, "-m", "leveret", "serve", "--data", str(tmp_path), *ports],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 1
            assert done.stdout == ""
            assert len(done.stderr.splitlines()) == 1
            assert done.stderr == (
                f"leveret serve: cannot start: {flag}: cannot listen on 127.0.0.1:{port}: another"
                " program uses this port: stop it, or choose another port\n"
            )


@pytest.mark.parametrize(
    ("below", "reason"), [("", "it is a file"), ("below", "a part of this path is a file")]
)
def test_a_data_directory_that_cannot_be_is_one_line(
    tmp_path: Path, below: str, reason: str
) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    done = run_serve("--data", str(file / below))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"leveret serve: cannot start: --data: {file / below}: {reason}; "
        "choose a data directory that this user can write to\n"
    )


def test_a_host_that_nobody_knows_is_named(tmp_path: Path) -> None:
    host = "nobody.invalid"
    done = run_serve("--data", str(tmp_path), "--host", host, "--default-pass", "own")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"leveret serve: cannot start: --host: cannot listen on {host} (" in done.stderr


def run_serve(*flags: str) -> subprocess.CompletedProcess[str]:
    """A node that is not expected to start."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    ports = ["--amqp-port", "0", "--http-port", "0"]
    return subprocess.run(
        [sys.executable, "-m", "leveret", "serve", *ports, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean,
    )


def test_off_loopback_without_a_password_is_one_sentence_and_exit_code_one(tmp_path: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    command = [sys.executable, "-m", "leveret", "serve", "--data", str(tmp_path)]
    ports = ["--host", "0.0.0.0", "--amqp-port", "0", "--http-port", "0"]
    done = subprocess.run(
        [*command, *ports], capture_output=True, text=True, timeout=60, check=False, env=clean
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "--host: other machines can reach 0.0.0.0, " in done.stderr
    assert "--default-pass" in done.stderr
    with subprocess.Popen(
        [*command, *ports, "--default-pass", "own"], stdout=subprocess.PIPE, text=True, env=clean
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("leveret ready amqp=0.0.0.0:")
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_stderr_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)  # some twenty lines
    with os.fdopen(writer, "w") as stderr, os.fdopen(reader, "rb"):
        with serving(tmp_path, stderr=stderr) as (process, ready):
            for _ in range(60):  # each is worth two lines
                with pika.BlockingConnection(pika.ConnectionParameters(ready[1], int(ready[2]))):
                    pass
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


def test_clients_outlive_a_stop_of_the_process(tmp_path: Path) -> None:
    """The clients go on sending heartbeats while the broker is stopped for four intervals."""
    with serving(tmp_path, "--heartbeat-s", "2") as (process, ready):
        options = Handshake(heartbeat_s=2)
        clients = [connect(ready[1], int(ready[2]), options) for _ in range(5)]
        channels = [client.channel() for client in clients]
        process.send_signal(signal.SIGSTOP)
        for _ in range(8):
            time.sleep(1)  # half a heartbeat interval: time must pass while the process is stopped
            for client in clients:
                client.send_frame(wire.HEARTBEAT, 0, b"")
        process.send_signal(signal.SIGCONT)
        for channel in channels:
            assert is_method(channel.call("basic.qos"), "basic.qos-ok")
        for client in clients:
            client.close()
