"""The brokers that the suite runs against, as processes that can be killed and started again.

Each has directories of its own and keeps its port, so that after a kill the same broker comes back.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

from tests.clients.process import Child
from tests.compat.client import Connection, NoAnswerError, is_method
from tools import rabbitmq
from tools.ports import HOST, free_port
from tools.rabbitmq import UnavailableError

START_S: Final = 240.0
ANSWER_S: Final = 60.0
READY_LINE: Final = r"^leveret ready amqp=(\S+):(\d+) http=\S+:(\d+)$"


class Node:
    """A broker on a port of its own."""

    name = ""
    port = 0
    http_port = 0

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/"

    def start(self) -> None:
        """Start the process and wait until it accepts connections."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill it at once, as a loss of power would."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop it and remove its files."""
        raise NotImplementedError

    def set_policy(self, pattern: str, definition: dict[str, int]) -> None:
        """Set a policy for the queues whose names match."""
        raise NotImplementedError


class Leveret(Node):
    """`leveret serve` of the form under test."""

    name = "leveret"

    def __init__(self) -> None:
        self._data = Path(tempfile.mkdtemp(prefix="leveret-bus-"))
        self._child: Child | None = None

    def start(self) -> None:
        serve = [sys.executable, "-m", "leveret", "serve", "--host", HOST]
        ports = ["--amqp-port", str(self.port), "--http-port", str(self.http_port)]
        self._child = Child([*serve, "--data", str(self._data), *ports])
        ready = self._child.wait_for(READY_LINE)
        self.port, self.http_port = int(ready[2]), int(ready[3])

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def set_policy(self, pattern: str, definition: dict[str, int]) -> None:
        document = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
        address = f"http://{HOST}:{self.http_port}/api/policies/%2F/{abs(hash(pattern))}"
        login = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            address, json.dumps(document).encode(), headers, method="PUT"
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310 our own
            assert answer.status in (201, 204)

    def close(self) -> None:
        if self._child is not None:
            code = self._child.stop()
            assert code == 0, self._child.output()
            assert "Traceback" not in self._child.output(), self._child.output()
        shutil.rmtree(self._data, ignore_errors=True)


class RabbitMQ(Node):
    """RabbitMQ from Debian's package. Raise UnavailableError if it cannot be installed."""

    name = "rabbitmq"

    def __init__(self) -> None:
        rabbitmq.require_installed(install=True)
        self._directory = Path(tempfile.mkdtemp(prefix="rabbitmq-bus-"))
        self.port, self._epmd_port = free_port(), free_port()
        self._environment = rabbitmq.environment(self._directory, "bus", self.port, self._epmd_port)
        self._child: Child | None = None

    def start(self) -> None:
        command: list[str | Path] = [rabbitmq.SERVER]
        if user := rabbitmq.user():
            command = ["runuser", "-u", user, "--", *command]
        self._child = Child(command, self._environment, self._directory)
        deadline_s = time.monotonic() + START_S
        while not _answers(self.port):
            if time.monotonic() > deadline_s:
                raise UnavailableError(f"RabbitMQ did not start:\n{self._child.output()}")
            time.sleep(0.1)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def set_policy(self, pattern: str, definition: dict[str, int]) -> None:
        command: list[str | Path] = [rabbitmq.CONTROL, "set_policy", "--apply-to", "queues"]
        command += [str(abs(hash(pattern))), pattern, json.dumps(definition)]
        if user := rabbitmq.user():
            command = ["runuser", "-u", user, "--", *command]
        child = Child(command, self._environment, self._directory)
        assert child.wait(START_S) == 0, child.output()

    def close(self) -> None:
        if self._child is not None:
            self._child.stop()
        rabbitmq.end_epmd(self._epmd_port)
        rabbitmq.restore_null()
        shutil.rmtree(self._directory, ignore_errors=True)


def _answers(port: int) -> bool:
    try:
        connection = Connection(HOST, port, answer_s=2.0)
    except OSError:
        return False
    try:
        return is_method(connection.start(), "connection.start")
    except NoAnswerError:
        return False
    finally:
        connection.socket.close()
