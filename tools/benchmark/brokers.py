"""Processes of both brokers, on free ports and in separate directories, with CPU and memory.

Both are started and measured in the same way. A broker is ready when a connection gets an answer to
the protocol header. CPU and memory include all child processes and threads. A broker can be killed
and restarted with its data. `tools.rabbitmq` keeps our RabbitMQ apart from others on the machine.
Each process is ended by its own pid.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tools import rabbitmq as node
from tools.certificates import SelfSigned
from tools.ports import HOST, free_port
from tools.rabbitmq import UnavailableError

START_S: Final = 120.0
STOP_S: Final = 20.0
_POLL_S: Final = 0.005
_IDLE_S: Final = 0.05
_SETTLE_S: Final = 2.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Broker:
    """A broker process, which can be stopped and started again."""

    def __init__(
        self,
        name: str,
        port: int,
        command: list[str],
        environment: dict[str, str],
        directory: Path,
        *,
        user: str | None = None,
        pid_file: Path | None = None,
        tls_port: int = 0,
    ) -> None:
        self.name = name
        self.port = port
        self.tls_port = tls_port  # 0 = no TLS
        self.directory = directory
        self.start_s = 0.0  # from the start of the process until it accepts connections
        self.pid = 0  # of the broker itself, not of a script that starts it
        self._command = command
        self._environment = environment
        self._user = user
        self._pid_file = pid_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it accepts connections."""
        if self._pid_file is not None:
            self._pid_file.unlink(missing_ok=True)
        started_s = time.monotonic()
        with (self.directory / "output.log").open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.directory,
                user=self._user,
                group=self._user,
                start_new_session=True,
            )
        self._await_amqp(self._process)
        self.start_s = time.monotonic() - started_s
        self.pid = int(self._pid_file.read_text()) if self._pid_file else self._process.pid

    def kill(self) -> None:
        """Kill it (SIGKILL). Unlike a power failure, data that the kernel has is not lost."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """Stop it by SIGTERM, or by SIGKILL if it does not end."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid or self._process.pid, signal.SIGTERM)
        self._end()

    def _end(self) -> None:
        """Wait for the process. Kill its session if it does not end."""
        process = self._process
        if process is None:
            return
        self._process = None
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _await_amqp(self, process: subprocess.Popen[bytes]) -> None:
        deadline_s = time.monotonic() + START_S
        while not _answers(self.port):
            if process.poll() is not None or time.monotonic() > deadline_s:
                said = (self.directory / "output.log").read_text(errors="replace").strip()
                raise UnavailableError(f"{self.name} did not start: {said[-500:]}")
            time.sleep(_POLL_S)

    @property
    def http_port(self) -> int:
        """The HTTP port of Leveret, from its ready line."""
        said = (self.directory / "output.log").read_text(errors="replace")
        found = re.search(r"^leveret ready .* http=\S+:(\d+)$", said, re.MULTILINE)
        if found is None:
            raise UnavailableError(f"{self.name} did not print its HTTP port")
        return int(found[1])

    def cpu_s(self) -> float:
        """Return the CPU time used so far."""
        ticks = 0
        for pid in _family(self.pid):
            fields = _stat(pid)
            ticks += int(fields[11]) + int(fields[12]) if fields else 0
        return ticks / _TICKS

    def memory_mb(self) -> float:
        """Return the resident memory."""
        pages = 0
        for pid in _family(self.pid):
            fields = _stat(pid)
            pages += int(fields[21]) if fields else 0
        return pages * _PAGE_BYTES / 1e6

    def settle(self) -> None:
        """Wait until the broker is idle, for at most two seconds."""
        deadline_s = time.monotonic() + _SETTLE_S
        before_s = self.cpu_s()
        while time.monotonic() < deadline_s:
            time.sleep(_IDLE_S)
            after_s = self.cpu_s()
            if after_s - before_s < _IDLE_S / 2:
                return
            before_s = after_s


@contextlib.contextmanager
def leveret(directory: Path, tls: SelfSigned | None = None) -> Iterator[Broker]:
    """Run `leveret serve` of the package that this Python imports. Stop it and delete its data."""
    port, tls_port = free_port(), free_port() if tls is not None else 0
    flags = ["--host", HOST, "--amqp-port", str(port), "--http-port", "0"]
    if tls is not None:
        flags += ["--amqps-port", str(tls_port)]
        flags += ["--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
    command = [sys.executable, "-m", "leveret", "serve", *flags, "--data", str(directory / "data")]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    directory.mkdir(parents=True, exist_ok=True)
    made = Broker("Leveret", port, command, clean, directory, tls_port=tls_port)
    with _running(made) as broker:
        yield broker


@contextlib.contextmanager
def rabbitmq(directory: Path, tls: SelfSigned | None = None) -> Iterator[Broker]:
    """Run Debian's RabbitMQ, as user `rabbitmq` if we are root. Stop it and delete its data."""
    node.require_installed()
    port, epmd_port = free_port(), free_port()
    directory.mkdir(parents=True, exist_ok=True)
    tls_port = free_port() if tls is not None else 0
    environment = {**os.environ, **node.environment(directory, "bench", port, epmd_port)}
    if tls is not None:
        environment["RABBITMQ_CONFIG_FILE"] = str(node.tls_config(directory, tls, tls_port))
    pid_file = directory / "pid"
    broker = Broker(
        "RabbitMQ",
        port,
        [str(node.SERVER)],
        environment,
        directory,
        user=node.user(),
        pid_file=pid_file,
        tls_port=tls_port,
    )
    try:
        with _running(broker):
            yield broker
    finally:
        node.end_epmd(epmd_port)
        node.restore_null()


@contextlib.contextmanager
def rabbitmq_cluster(directory: Path, size: int) -> Iterator[list[Broker]]:
    """Run a cluster of Debian's RabbitMQ. Stop its nodes and delete their data."""
    node.require_installed()
    epmd_port = free_port()
    folders = [directory / f"rabbitmq{number}" for number in range(1, size + 1)]
    ports = [free_port() for _ in folders]
    environments = []
    for folder, port in zip(folders, ports, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        found = node.environment(folder, folder.name, port, epmd_port)
        environments.append({**os.environ, **found})
    node.join(environments, folders)
    try:
        with contextlib.ExitStack() as stack:
            brokers: list[Broker] = []
            for folder, port, environment in zip(folders, ports, environments, strict=True):
                made = Broker(
                    f"RabbitMQ node {len(brokers) + 1}",
                    port,
                    [str(node.SERVER)],
                    environment,
                    folder,
                    user=node.user(),
                    pid_file=folder / "pid",
                )
                brokers.append(stack.enter_context(_running(made)))
            node.await_nodes(environments[0], size, START_S)
            yield brokers
    finally:
        node.end_epmd(epmd_port)
        node.restore_null()


Start = Callable[[Path], contextlib.AbstractContextManager[Broker]]


@contextlib.contextmanager
def _running(broker: Broker) -> Iterator[Broker]:
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(broker.directory, ignore_errors=True)


def _answers(port: int) -> bool:
    """Return True if a broker answers the protocol header on this port."""
    try:
        with socket.create_connection((HOST, port), 2.0) as probe:
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            return probe.recv(1) == b"\x01"
    except OSError:
        return False


def _family(root: int) -> list[int]:
    """Return a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    family = [root]
    for pid in family:
        family.extend(parents.get(pid, []))
    return family


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
