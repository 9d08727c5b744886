"""Redis, PostgreSQL and Leveret as processes, and their CPU time.

PostgreSQL syncs its log, as it does by default. Redis writes nothing to disk, which is how queues
on it are usually run.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.ports import HOST
from tools.services import Postgres, RedisServer

STOP_WITHIN_S: Final = 20.0
NAMESPACE: Final = "bench"
_SECRET: Final = {"LEVERET_JOBS_TOKEN_SECRET": "a secret that all nodes of the benchmark share"}
_READY: Final = re.compile(r"leveret ready amqp=\S+ http=\S+:(\d+)")


@dataclass(frozen=True)
class Running:
    """A server: where it is, and the process whose children count as its own."""

    url: str
    pid: int
    token: str = ""


@contextmanager
def directory(prefix: str) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=f"leveret-{prefix}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def redis() -> Iterator[Running]:
    server = RedisServer()
    try:
        server.start()
        yield Running(server.url, server.pid)
    finally:
        server.remove()


@contextmanager
def postgres(count: int) -> Iterator[list[Running]]:
    """So many databases of one server."""
    server = Postgres(is_synced=True)
    try:
        server.start()
        with server.databases(count) as dsns:
            yield [Running(dsn, server.pid) for dsn in dsns]
    finally:
        server.remove()


@contextmanager
def leveret(*flags: str) -> Iterator[Running]:
    """A node, with a token for NAMESPACE."""
    with directory("jobs") as data:
        serve = ["serve", "--data", str(data), "--amqp-port", "0", "--http-port", "0", *flags]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "leveret", *serve],
            stdout=subprocess.PIPE,
            text=True,
            env=clean | _SECRET,
        )
        try:
            assert process.stdout is not None
            ready = _READY.match(process.stdout.readline())
            assert ready is not None, "the node did not start"
            yield Running(
                f"http://{HOST}:{ready[1]}", process.pid, token_of(data, env=clean | _SECRET)
            )
        finally:
            _end(process)


def token_of(data: Path, namespace: str = NAMESPACE, env: dict[str, str] | None = None) -> str:
    """A token as an operator makes one."""
    words = ["jobs", "token", "--data", str(data), "--namespace", namespace]
    done = subprocess.run(
        [sys.executable, "-m", "leveret", *words],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    return done.stdout.strip().splitlines()[-1]


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
