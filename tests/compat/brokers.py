"""The two brokers of the comparison as processes of our own: `leveret serve` and RabbitMQ.

Each is started on free ports of the loopback interface with directories of its own, waited for,
and ended with everything it started. What makes a RabbitMQ our own is in `tools.rabbitmq`. Debian's
package is installed where it is missing and that is allowed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.clients.process import Child
from tests.compat.client import Connection, NoAnswerError, is_method
from tools import rabbitmq as node
from tools.ports import HOST, free_port
from tools.rabbitmq import ROOT, UnavailableError

RABBITMQ_START_S: Final = 240.0
READY_LINE: Final = r"^leveret ready amqp=(\S+):(\d+) http=\S+:\d+$"


class Address(NamedTuple):
    """Where a broker listens for AMQP."""

    host: str
    port: int


@contextlib.contextmanager
def leveret() -> Iterator[Address]:
    """A broker process of the installed package; it must end cleanly and without a traceback."""
    with tempfile.TemporaryDirectory(prefix="leveret-compat-") as data:
        serve = [sys.executable, "-m", "leveret", "serve", "--host", HOST, "--data", data]
        broker = Child([*serve, "--amqp-port", "0", "--http-port", "0"])
        try:
            ready = broker.wait_for(READY_LINE)
            yield Address(ready[1], int(ready[2]))
        finally:
            code = broker.stop()
        assert code == 0, broker.output()
        assert "Traceback" not in broker.output(), broker.output()


@contextlib.contextmanager
def rabbitmq(*plugins: str, definitions: object = None) -> Iterator[Address]:
    """A RabbitMQ of Debian's package on ports and directories of its own.

    `definitions` is a document that it loads at its start.
    """
    node.require_installed(install=True)
    directory = Path(tempfile.mkdtemp(prefix="rabbitmq-compat-"))
    port, epmd_port = free_port(), free_port()
    environment = node.environment(directory, "compat", port, epmd_port)
    (directory / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
    if definitions is not None:
        document, config = directory / "definitions.json", directory / "compat.conf"
        document.write_text(json.dumps(definitions))
        config.write_text(f"load_definitions = {document}\n")
        environment["RABBITMQ_CONFIG_FILE"] = str(config)
    command: list[str | Path] = [node.SERVER]
    if user := node.user():
        command = ["runuser", "-u", user, "--", *command]
    broker = Child(command, environment, directory)
    try:
        _await_amqp(port, broker)
        yield Address(HOST, port)
    finally:
        broker.stop()
        node.end_epmd(epmd_port)
        node.restore_null()
        shutil.rmtree(directory, ignore_errors=True)


def _await_amqp(port: int, broker: Child) -> None:
    deadline_s = time.monotonic() + RABBITMQ_START_S
    while not _answers(port):
        if time.monotonic() > deadline_s:
            raise UnavailableError(f"RabbitMQ did not start:\n{broker.output()}")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    try:
        connection = Connection(HOST, port, answer_s=2.0)
    except OSError:
        return False
    with contextlib.closing(connection.socket), contextlib.suppress(NoAnswerError):
        return is_method(connection.start(), "connection.start")
    return False


__all__ = ["HOST", "ROOT", "Address", "UnavailableError", "free_port", "leveret", "rabbitmq"]
