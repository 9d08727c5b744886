"""The command line as a process: its output and its exit code."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from leveret.storage.blocks import encode_head


def leveret(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leveret", *words]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    return subprocess.run(
        command, env={**clean, **env}, capture_output=True, text=True, timeout=60, check=False
    )


def test_version_shows_the_form(compiled: bool) -> None:
    done = leveret("--version")
    form = "compiled" if compiled else "pure Python"
    assert done.returncode == 0
    assert done.stdout.startswith("leveret 0.1.0 (" + form + ", ")


def test_dump_of_a_file_that_is_not_of_a_broker_fails(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    done = leveret("ctl", "dump", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert "notes.txt is not a file that dump can read" in done.stderr


def test_reader_that_leaves_ends_a_command_without_a_word(tmp_path: Path) -> None:
    """`leveret ctl … | head` is no failure."""
    file = tmp_path / "0000000000000007.log"
    file.write_bytes(encode_head(7))
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "leveret", "ctl", "dump", str(file)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_help_lists_the_commands() -> None:
    done = leveret("--help")
    assert done.returncode == 0
    assert "serve" in done.stdout
    assert "ctl" in done.stdout


def test_help_of_serve_lists_every_flag() -> None:
    done = leveret("serve", "--help")
    assert done.returncode == 0
    for flag in ("--data", "--host", "--amqp-port", "--http-port", "--node", "--cluster-peers"):
        assert flag in done.stdout


def test_unknown_flag_is_misuse() -> None:
    done = leveret("serve", "--amqp-prot", "1")
    assert done.returncode == 2
    assert "--amqp-prot" in done.stderr


def test_unknown_command_is_misuse() -> None:
    done = leveret("sreve")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "sreve" in done.stderr


def test_all_configuration_errors_are_printed_before_anything_starts() -> None:
    done = leveret("serve", "--amqp-port", "99999", LEVERET_HEARTBEAT_S="soon")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "leveret serve: LEVERET_HEARTBEAT_S: 'soon' is not a whole number",
        "leveret serve: --amqp-port: 99999 is not between 0 and 65535",
    ]


def test_ctl_without_a_broker_says_so_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    done = leveret("ctl", "status", "--url", f"http://127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"leveret ctl: no broker answers at http://127.0.0.1:{port}: Connection refused"
    ]


class Answer(BaseHTTPRequestHandler):
    """Answers like a healthy broker, or like a server that is not a broker."""

    def do_GET(self) -> None:
        bodies = {
            "/api/health": b'{"status": "ok", "node": "hare", "durability": "os"}',
            "/api/version": b'{"version": "0.1.0", "form": "compiled"}',
        }
        body = bodies.get(self.path, b"<html>")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def answering() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_ctl_status_prints_what_the_broker_says(answering: str) -> None:
    done = leveret("ctl", "status", "--url", answering)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "node     hare",
        "health   ok",
        "safe     a power failure can lose confirmed messages (durability os)",
        "version  0.1.0 (compiled)",
    ]


def test_ctl_status_prints_json_for_programs(answering: str) -> None:
    done = leveret("ctl", "status", "--url", answering, "--json")
    assert json.loads(done.stdout)["health"]["status"] == "ok"


def test_ctl_reports_an_address_that_is_not_a_broker(answering: str) -> None:
    done = leveret("ctl", "status", "--url", answering + "/elsewhere")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("leveret ctl: no broker answers at ")
