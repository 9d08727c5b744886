"""More clients than descriptors: some are refused; files and HTTP still get descriptors."""

import re
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path

from tests.serve.test_process import READY
from tests.serve.test_stop import HTTPConnectionOf

HEADER = b"AMQP\x00\x00\x09\x01"
FEW = """
import resource, sys
files_max = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
from leveret.cli.main import main
sys.exit(main(["serve", "--data", sys.argv[1], "--amqp-port", "0", "--http-port", "0"]))
"""


def is_greeted(client: socket.socket) -> bool:
    try:
        client.sendall(HEADER)
        return client.recv(1) == b"\x01"
    except OSError:
        return False


def test_clients_cannot_take_the_descriptors_that_files_and_http_need(tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    command = [sys.executable, "-c", FEW, str(tmp_path / "data"), "64"]
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as node,
        ExitStack() as clients,
    ):
        try:
            assert node.stdout is not None
            ready = READY.fullmatch(node.stdout.readline())
            assert ready is not None
            # HTTP has still to read its modules: at once there are more clients than descriptors.
            found = [connect(int(ready[2]), clients) for _ in range(100)]
            greeted = sum(map(is_greeted, found))
            assert 8 <= greeted < 64
            with HTTPConnectionOf(int(ready[4])) as browser:
                browser.request("GET", "/api/health")
                answer = browser.getresponse()
                assert (answer.status, answer.read() != b"") == (200, True)
                for number in range(20):  # each stream is a file
                    write_stream(browser, f"s{number}")
            clients.close()
            assert any(is_greeted(connect(int(ready[2]), clients)) for _ in range(1000))
            node.send_signal(signal.SIGTERM)
            assert node.wait(timeout=60) == 0
        finally:
            node.kill()
    text = errors.read_text()
    assert "only 64 files may be open, and each client needs one: raise the limit" in text
    assert "the node has too many open files: raise its limit" in text
    assert not re.search(r"level=error|Traceback", text)


def test_a_node_that_may_open_too_few_files_for_http_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FEW, str(tmp_path / "data"), "20"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == (
        "leveret serve: cannot start: only 20 files may be open, and a node needs at least 64: "
        "raise the limit (`ulimit -Hn`, LimitNOFILE of systemd)\n"
    )
    assert not (tmp_path / "data").exists()


def write_stream(browser: HTTPConnectionOf, name: str) -> None:
    """Declare a stream and publish a message to it, over HTTP."""
    stream = b'{"durable": true, "arguments": {"x-queue-type": "stream"}}'
    message = (
        b'{"routing_key": "%s", "payload": "m", "payload_encoding": "string", "properties": {}}'
    )
    login = {"Authorization": f"Basic {b64encode(b'guest:guest').decode()}"}
    browser.request("PUT", f"/api/queues/%2F/{name}", stream, login)
    answer = browser.getresponse()
    assert (answer.status, answer.read()) == (201, b"")
    path = "/api/exchanges/%2F/amq.default/publish"
    browser.request("POST", path, message % name.encode(), login)
    answer = browser.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"routed":true}')


def connect(port: int, clients: ExitStack) -> socket.socket:
    return clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
