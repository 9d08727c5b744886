"""The brokers that the suite runs against, as processes that can be killed and started again.

Each has directories of its own and keeps its port, so that after a kill the same broker comes back.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.clients.process import Child
from tests.compat.client import Connection, NoAnswerError, is_method
from tools import rabbitmq
from tools.ports import HOST, free_port
from tools.rabbitmq import UnavailableError

START_S: Final = 90.0
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
