"""The two brokers of the comparison as processes of our own: `leveret serve` and RabbitMQ.

Each is started on free ports of the loopback interface with directories of its own, waited for,
and ended with everything it started. A RabbitMQ that runs already is never touched: ours has its
own node name, its own epmd and its own home. Debian's package is installed where it is missing and
that is allowed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.clients.process import Child
from tests.compat.client import Connection, NoAnswer, is_method

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).resolve().parents[2]
RABBITMQ_SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
RABBITMQ_START_S: Final = 90.0
READY_LINE: Final = r"^leveret ready amqp=(\S+):(\d+) http=\S+:\d+$"


class Address(NamedTuple):
    """Where a broker listens for AMQP."""

    host: str
    port: int


class Unavailable(Exception):
    """A broker cannot be had on this machine; the text says why."""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


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
def rabbitmq() -> Iterator[Address]:
    """A RabbitMQ of Debian's package on ports and directories of its own."""
    _require_installed()
    directory = Path(tempfile.mkdtemp(prefix="rabbitmq-compat-"))
    port, epmd_port = free_port(), free_port()
    environment = _environment(directory, port, epmd_port)
    command: list[str | Path] = [RABBITMQ_SERVER]
    if os.geteuid() == 0:
        shutil.chown(directory, "rabbitmq", "rabbitmq")
        command = ["runuser", "-u", "rabbitmq", "--", *command]
    broker = Child(command, environment, directory)
    try:
        _await_amqp(port, broker)
        yield Address(HOST, port)
    finally:
        broker.stop()
        _end_epmd(environment)
        _restore_null()
        shutil.rmtree(directory, ignore_errors=True)


def _require_installed() -> None:
    if not RABBITMQ_SERVER.exists():
        script = ROOT / "tools" / "system_packages.sh"
        subprocess.run([script, sys.executable, "rabbitmq"], check=False)
        _restore_null()
    if not RABBITMQ_SERVER.exists():
        raise Unavailable("RabbitMQ is not installed; Debian's package is rabbitmq-server")


def _environment(directory: Path, port: int, epmd_port: int) -> dict[str, str]:
    plugins = directory / "enabled_plugins"
    plugins.write_text("[].\n")
    return {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"compat{os.getpid()}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none.env"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(epmd_port),
    }


def _await_amqp(port: int, broker: Child) -> None:
    deadline_s = time.monotonic() + RABBITMQ_START_S
    while not _answers(port):
        if time.monotonic() > deadline_s:
            raise Unavailable(f"RabbitMQ did not start:\n{broker.output()}")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    try:
        connection = Connection(HOST, port, answer_s=2.0)
    except OSError:
        return False
    with contextlib.closing(connection.socket), contextlib.suppress(NoAnswer):
        return is_method(connection.start(), "connection.start")
    return False


def _end_epmd(environment: dict[str, str]) -> None:
    """Ends the epmd that Erlang started on our own port; it outlives its node otherwise."""
    epmd = shutil.which("epmd")
    if epmd is not None:
        command = [epmd, "-port", environment["ERL_EPMD_PORT"], "-kill"]
        subprocess.run(command, check=False, capture_output=True, env={**os.environ})


def _restore_null() -> None:
    """RabbitMQ's set-up may leave /dev/null with its own owner and mode, which breaks others."""
    null = Path(os.devnull)
    if os.geteuid() == 0 and null.stat().st_mode & 0o777 != 0o666:
        os.chown(null, 0, 0)
        null.chmod(0o666)
