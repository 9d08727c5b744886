"""A node of a run, as a process."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.ports import free_port
from tools.services import freeze, resume

END_S: Final = 60.0
SECRET: Final = "a secret of the chaos run, long enough"


class Node:
    """A `leveret serve` on its own directory and port, killed and started again."""

    def __init__(self, folder: Path, redis_url: str, dsns: list[str], book: Path) -> None:
        self._folder = folder
        self._book = book  # for acks that Redis alone has taken
        self.port = free_port()
        self._redis_url = redis_url
        self._flags: list[str] = []
        self._offset = folder.parent / f"{folder.name}.offset"
        self.set_clock(0)
        self.give(dsns)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False

    def give(self, dsns: list[str]) -> None:
        """The shards, from the next start on."""
        shards = [word for dsn in dsns for word in ("--jobs-postgres", dsn)]
        own = ["--data", str(self._folder), "--amqp-port", "0", "--http-port", str(self.port)]
        jobs = ["--jobs-redis", self._redis_url, *shards, "--jobs-token-secret", SECRET]
        self._flags = own + jobs

    def set_clock(self, off_ms: int) -> None:
        """Set the wall clock of the node wrong by so much, at once."""
        draft = self._offset.with_suffix(".draft")
        draft.write_text(str(off_ms))
        draft.replace(self._offset)

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start without waiting: a node may wait for servers that are frozen."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        node = [sys.executable, "-m", "tools.chaos_jobs.skewed_node"]
        command = [*node, str(self._offset), str(self._book), "serve", *self._flags]
        with (self._folder.parent / f"{self._folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=clean)
        self._is_ready = False

    def wait_until_ready(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        if self._is_ready:
            return
        if not self._process.stdout.readline().startswith(b"leveret ready"):
            raise RuntimeError(f"a node did not start: see {self._folder}.log")
        self._is_ready = True

    def freeze(self) -> None:
        assert self._process is not None
        freeze(self._process.pid)

    def resume(self) -> None:
        if self._process is not None:
            resume(self._process.pid)

    def end(self, number: int) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    def close(self) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)
