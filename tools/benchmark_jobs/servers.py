"""Redis, PostgreSQL and Leveret as processes of their own, on free ports, with data that goes.

PostgreSQL refuses to run as root: where we are root it runs as `nobody`. It syncs its log, as it
does by default. Redis writes nothing to disk, which is how queues on it are usually run.
"""

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
START_WITHIN_S: Final = 60.0
STOP_WITHIN_S: Final = 20.0
NAMESPACE: Final = "bench"
_READY: Final = re.compile(r"leveret ready amqp=\S+ http=\S+:(\d+)")
_PROGRAMS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


@dataclass(frozen=True)
class Running:
    """A server: where it is, and the process whose children count as its own."""

    url: str
    pid: int
    token: str = ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def directory(prefix: str) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=f"leveret-{prefix}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def redis() -> Iterator[Running]:
    port = free_port()
    with directory("redis") as data:
        flags = ["--port", str(port), "--bind", HOST, "--save", "", "--dir", str(data)]
        process = _spawned(["redis-server", *flags, "--appendonly", "no"])
        try:
            _wait_for(port)
            yield Running(f"redis://{HOST}:{port}", process.pid)
        finally:
            _end(process)


@contextmanager
def postgres(databases: list[str]) -> Iterator[Running]:
    """One server; its URL lacks the name of the database."""
    port = free_port()
    with directory("postgres") as data:
        user = _user_for(data)
        programs = _PROGRAMS[0]
        subprocess.run(
            [*user, f"{programs}/initdb", "-D", str(data), "-U", "bench", "--auth=trust"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        flags = ["-p", str(port), "-h", HOST, "-k", str(data), "-c", "max_connections=200"]
        process = _spawned([*user, str(programs / "postgres"), "-D", str(data), *flags])
        try:
            _wait_until_ready(programs, port)
            for name in databases:
                create = [f"{programs}/createdb", "-h", HOST, "-p", str(port), "-U", "bench", name]
                subprocess.run(create, check=True)
            yield Running(f"postgresql://bench@{HOST}:{port}", process.pid)
        finally:
            _end(process)


@contextmanager
def leveret(*flags: str) -> Iterator[Running]:
    """A node, with a token for NAMESPACE."""
    with directory("jobs") as data:
        serve = ["serve", "--data", str(data), "--amqp-port", "0", "--http-port", "0", *flags]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "leveret", *serve], stdout=subprocess.PIPE, text=True, env=clean
        )
        try:
            assert process.stdout is not None
            ready = _READY.match(process.stdout.readline())
            assert ready is not None, "the node did not start"
            yield Running(f"http://{HOST}:{ready[1]}", process.pid, token_of(data))
        finally:
            _end(process)


def token_of(data: Path, namespace: str = NAMESPACE) -> str:
    """A token as an operator makes one."""
    words = ["jobs", "token", "--data", str(data), "--namespace", namespace]
    done = subprocess.run(
        [sys.executable, "-m", "leveret", *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


def _user_for(data: Path) -> list[str]:
    if os.getuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    os.chown(data, nobody.pw_uid, nobody.pw_gid)
    return ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]


def _spawned(command: list[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd="/")


def _wait_for(port: int) -> None:
    until_s = time.monotonic() + START_WITHIN_S
    while time.monotonic() < until_s:
        try:
            socket.create_connection((HOST, port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


def _wait_until_ready(programs: Path, port: int) -> None:
    """It listens before it answers."""
    ask = [f"{programs}/pg_isready", "-q", "-h", HOST, "-p", str(port), "-t", "1"]
    until_s = time.monotonic() + START_WITHIN_S
    while subprocess.run(ask, check=False).returncode != 0:
        if time.monotonic() > until_s:
            raise RuntimeError("PostgreSQL did not start")
        time.sleep(0.05)


def _end(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def cpu_s(pids: list[int]) -> float:
    """CPU time of these processes and of their children, those that ended included."""
    total = 0
    for each in [*pids, *(child for pid in pids for child in _children(pid))]:
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in found.split()]
