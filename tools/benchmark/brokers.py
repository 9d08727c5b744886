"""A process of each broker, on ports and directories of its own, and what it costs.

Both are started, waited for and measured in the same way: accepting means that a connection gets an
answer to the protocol header. CPU and memory are those of the broker's process with its children,
all threads included. A broker that runs already is never touched: ours has its own port, and
RabbitMQ its own node name, home and epmd. Each is ended by its own pid.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
RABBITMQ_SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_S: Final = 60.0
STOP_S: Final = 20.0
_POLL_S: Final = 0.005
_IDLE_S: Final = 0.05
_SETTLE_S: Final = 2.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Unavailable(Exception):
    """A broker cannot be had on this machine; the text says why."""


class Broker:
    """A running broker."""

    def __init__(self, name: str, port: int, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.port = port
        self.process = process
        self.pid = process.pid  # of the process that is the broker; scripts around it do not count
        self.start_s = 0.0  # from the start of the process to accepting

    def cpu_s(self) -> float:
        """CPU time used so far."""
        ticks = 0
        for pid in _family(self.pid):
            fields = _stat(pid)
            ticks += int(fields[11]) + int(fields[12]) if fields else 0
        return ticks / _TICKS

    def memory_mb(self) -> float:
        """Resident memory now."""
        pages = 0
        for pid in _family(self.pid):
            fields = _stat(pid)
            pages += int(fields[21]) if fields else 0
        return pages * _PAGE_BYTES / 1e6

    def settle(self) -> None:
        """Wait until the broker has nothing more to do, a while."""
        deadline_s = time.monotonic() + _SETTLE_S
        before_s = self.cpu_s()
        while time.monotonic() < deadline_s:
            time.sleep(_IDLE_S)
            after_s = self.cpu_s()
            if after_s - before_s < _IDLE_S / 2:
                return
            before_s = after_s


@contextlib.contextmanager
def leveret(directory: Path) -> Iterator[Broker]:
    """`leveret serve`, of the package that this Python imports."""
    port = free_port()
    flags = ["--host", HOST, "--amqp-port", str(port), "--http-port", "0"]
    command = [sys.executable, "-m", "leveret", "serve", *flags, "--data", str(directory / "data")]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    with _process("Leveret", command, clean, directory, port) as broker:
        yield broker


@contextlib.contextmanager
def rabbitmq(directory: Path) -> Iterator[Broker]:
    """Debian's RabbitMQ, as the user `rabbitmq` where this is root."""
    if not RABBITMQ_SERVER.exists():
        raise Unavailable("RabbitMQ is not installed; Debian's package is rabbitmq-server")
    port, epmd_port = free_port(), free_port()
    directory.mkdir(parents=True, exist_ok=True)
    user = "rabbitmq" if os.geteuid() == 0 else None
    if user:
        shutil.chown(directory, user, user)
    environment = {**os.environ, **_rabbitmq_environment(directory, port, epmd_port)}
    command = [str(RABBITMQ_SERVER)]
    try:
        with _process("RabbitMQ", command, environment, directory, port, user) as broker:
            broker.pid = int((directory / "pid").read_text())
            try:
                yield broker
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(broker.pid, signal.SIGTERM)
    finally:
        _end_epmd(epmd_port)
        _restore_null()


def _rabbitmq_environment(directory: Path, port: int, epmd_port: int) -> dict[str, str]:
    plugins = directory / "enabled_plugins"
    plugins.write_text("[].\n")
    return {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
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


@contextlib.contextmanager
def _process(
    name: str,
    command: list[str],
    environment: dict[str, str],
    directory: Path,
    port: int,
    user: str | None = None,
) -> Iterator[Broker]:
    """A process that accepts AMQP connections; ended with the block, directory and all."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "output.log").open("wb") as output:
        started_s = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=directory,
            user=user,
            group=user,
            start_new_session=True,
        )
    broker = Broker(name, port, process)
    try:
        _await_amqp(broker, directory)
        broker.start_s = time.monotonic() - started_s
        yield broker
    finally:
        _end(process)
        shutil.rmtree(directory, ignore_errors=True)


def _await_amqp(broker: Broker, directory: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while not _answers(broker.port):
        if broker.process.poll() is not None or time.monotonic() > deadline_s:
            said = (directory / "output.log").read_text(errors="replace").strip()
            raise Unavailable(f"{broker.name} did not start: {said[-500:]}")
        time.sleep(_POLL_S)


def _answers(port: int) -> bool:
    """Whether a broker there answers to the protocol header."""
    try:
        with socket.create_connection((HOST, port), 2.0) as probe:
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            return probe.recv(1) == b"\x01"
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started; what of its own session does not end by itself is killed."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_epmd(port: int) -> None:
    """Erlang's name daemon on our own port outlives its node."""
    epmd = shutil.which("epmd")
    if epmd is not None:
        command = [epmd, "-port", str(port), "-kill"]
        subprocess.run(command, check=False, capture_output=True)


def _restore_null() -> None:
    """RabbitMQ's scripts may leave /dev/null with their own owner and mode, which breaks others."""
    null = Path(os.devnull)
    if os.geteuid() == 0 and null.stat().st_mode & 0o777 != 0o666:
        os.chown(null, 0, 0)
        null.chmod(0o666)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def _family(root: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    family = [root]
    for pid in family:
        family.extend(parents.get(pid, []))
    return family


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
