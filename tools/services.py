"""PostgreSQL and Redis as processes of our own, on free ports, in a temporary folder.

PostgreSQL refuses to run as root; then its processes run as a user that has nothing else. It syncs
where that is asked for: tests kill processes, not the machine, and what is measured must sync.
"""

import asyncio
import atexit
import functools
import os
import pwd
import re
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import redis

from tools.ports import HOST, free_port

START_S = 240.0
_POSTGRES_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin")
_USERS = ("postgres", "nobody")
_OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "log_min_messages": "fatal",
    "deadlock_timeout": "200ms",
}
_UNSYNCED = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB"}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        for folder in _POSTGRES_FOLDERS:
            base, _, rest = folder.partition("*")
            paths = sorted(Path(base).glob("*" + rest)) if rest else [Path(folder)]
            for path in reversed(paths):
                if (path / name).exists():
                    return str(path / name)
        raise RuntimeError(f"{name} is not installed: tools/system_packages.sh brings it")
    return found


def _unprivileged() -> dict[str, Any]:
    """Arguments of subprocess that leave root."""
    if os.getuid() != 0:
        return {}
    for name in _USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid}
    raise RuntimeError("there is no user to run PostgreSQL as")


@functools.cache
def _strategy() -> str:
    """Return the option that makes a new database a copy of files.

    Without it PostgreSQL 15 and later write the new database to the log, with three times the CPU
    time. Earlier versions always copy files.
    """
    command = [_program("postgres"), "--version"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    version = re.search(r"\d+", told)
    return "STRATEGY FILE_COPY" if version is None or int(version[0]) >= 15 else ""


def _family(pid: int) -> list[int]:
    """Return a process and its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:  # the process has ended
        children = []
    return [pid, *map(int, children)]


def _signal_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def freeze(pid: int) -> None:
    """Stop a process and its children where they are, also children that begin just now."""
    frozen: set[int] = set()
    while new := set(_family(pid)) - frozen:
        _signal_each(new, signal.SIGSTOP)
        frozen |= new


def resume(pid: int) -> None:
    """Let a frozen process and its children go on."""
    _signal_each(_family(pid), signal.SIGCONT)


class Process:
    """A server that can be killed and started again on its port and data."""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="leveret-jobs-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._lives = -1  # the end of a pipe that closes when the last process of the server ends

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        self._lives, held = os.pipe()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                pass_fds=[held],
                **self.privileges(),
            )
        os.close(held)
        end = time.monotonic() + START_S
        while not self.answers():
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.02)

    def privileges(self) -> dict[str, Any]:
        return {}

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end of all processes of the server.

        The children of a killed PostgreSQL end after it, and it does not start again before that.
        """
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_S)
            self._process = None
            self._wait_for_children()

    def freeze(self) -> None:
        """Stop all processes of the server where they are. Its connections stay open."""
        assert self._process is not None
        freeze(self._process.pid)

    def resume(self) -> None:
        """Let a frozen server go on."""
        if self._process is not None:
            resume(self._process.pid)

    def _wait_for_children(self) -> None:
        waiting = select.poll()
        waiting.register(self._lives)
        are_gone = waiting.poll(START_S * 1000)
        os.close(self._lives)
        if not are_gone:
            raise RuntimeError("processes of the server still run")

    def restart(self, number: int = signal.SIGINT) -> None:
        self.end(number)
        self.start()

    def remove(self) -> None:
        self.resume()
        self.end(signal.SIGQUIT if isinstance(self, Postgres) else signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


Server = TypeVar("Server", bound=Process)


class Postgres(Process):
    """A cluster with any number of databases."""

    def __init__(self, *, is_synced: bool = False) -> None:
        super().__init__()
        self._options = _OPTIONS if is_synced else {**_OPTIONS, **_UNSYNCED}
        self._data = self.folder / "data"
        privileges = _unprivileged()
        if privileges:
            os.chown(self.folder, privileges["user"], privileges["group"])
        initdb = [_program("initdb"), "-D", str(self._data), "-U", "leveret", "-A", "trust"]
        subprocess.run(
            [*initdb, "-N", "-E", "UTF8", "--locale=C"],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **privileges,
        )

    def privileges(self) -> dict[str, Any]:
        return _unprivileged()

    def command(self) -> list[str]:
        options = [f"--{name}={value}" for name, value in self._options.items()]
        return [_program("postgres"), "-D", str(self._data), "-p", str(self.port), *options]

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://leveret@{HOST}:{self.port}/{database}"

    def answers(self) -> bool:
        command = [_program("pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    @contextmanager
    def databases(self, count: int) -> Iterator[list[str]]:
        """Fresh databases, dropped at the end."""
        names = self.create(count)
        yield [self.dsn(name) for name in names]
        self.drop(names)

    def create(self, count: int, template: str = "template1") -> list[str]:
        """Make databases as copies of a template, and return their names."""
        names = [f"jobs_{secrets.token_hex(4)}" for _ in range(count)]
        copied = f"TEMPLATE {template} {_strategy()}"
        self._execute([f"CREATE DATABASE {name} {copied}" for name in names])
        return names

    def drop(self, names: list[str]) -> None:
        """Drop databases, whoever is connected to them."""
        self._execute([f"DROP DATABASE {name} WITH (FORCE)" for name in names])

    def _execute(self, statements: list[str]) -> None:
        async def run() -> None:
            connection = await asyncpg.connect(self.dsn(), timeout=60)
            for statement in statements:
                await connection.execute(statement)
            await connection.close()

        asyncio.run(run())


class RedisServer(Process):
    """Redis, in memory only."""

    _database = 0

    def command(self) -> list[str]:
        port = str(self.port)
        own = ["--bind", HOST, "--port", port, "--save", "", "--databases", "4096"]
        return [_program("redis-server"), *own]

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def fresh_url(self) -> str:
        """A database that nobody has used."""
        self._database += 1
        return f"redis://{HOST}:{self.port}/{self._database}"

    def answers(self) -> bool:
        with closing(redis.Redis(port=self.port)) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def wipe(self) -> None:
        with closing(redis.Redis(port=self.port)) as client:
            client.flushall()

    def cut_connections(self) -> None:
        """End the connections of all clients."""
        with closing(redis.Redis(port=self.port)) as client:
            client.client_kill_filter(_type="normal", skipme=True)


@functools.cache
def shared_postgres() -> Postgres:
    """One cluster for all tests of this process."""
    return _started(Postgres())


@functools.cache
def shared_redis() -> RedisServer:
    return _started(RedisServer())


def _started(server: Server) -> Server:
    atexit.register(server.remove)
    server.start()
    return server
