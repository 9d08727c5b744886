"""Producers and workers of jobs as processes, at all nodes of a cluster.

They are the actors of `tools.chaos_jobs`, which write every call and its answer to a file. Its
`ledger` checks the files.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from leveret.clock import Clock
from leveret.runtime.job_tokens import make_token
from tools.chaos_jobs import actor, ledger

SECRET: Final = "a secret of the chaos run, long enough"
PRODUCERS: Final = 1
WORKERS: Final = 2
LEASE_S: Final = 5.0
PAUSE_S: Final = 0.1
DONE_S: Final = 120.0  # for all jobs, after the last fault
END_S: Final = 60.0


class Jobs:
    """All producers and workers of a run."""

    def __init__(self, folder: Path, nodes: list[str]) -> None:
        self._books = folder / "books"
        self._books.mkdir()
        self._over = folder / "over"
        self._nodes = nodes  # their HTTP addresses, HOST:PORT
        token = make_token(SECRET, [actor.NAMESPACE], "chaos", Clock().now_ms(), 24 * 3600)
        self._producers = [self._start("produce", n, str(token)) for n in range(PRODUCERS)]
        self._workers = [self._start("work", n, str(token)) for n in range(WORKERS)]

    def _start(self, role: str, number: int, token: str) -> subprocess.Popen[bytes]:
        book = self._books / f"{role}{number}"
        options = [f"pause={PAUSE_S}", f"lease={LEASE_S}", f"over={self._over}"]
        command = [sys.executable, "-S", "-E", actor.__file__, role, str(book), token]
        return subprocess.Popen([*command, *self._nodes, *options])

    def finish(self) -> ledger.Account:
        """Let the producers end and the workers do all jobs; return what the books say."""
        self._over.touch()
        for producer in self._producers:
            producer.wait(END_S)
        last_s = time.monotonic() + DONE_S
        while True:
            account = ledger.balance(ledger.read(self._books))
            if not account.faults or time.monotonic() > last_s:
                return account
            time.sleep(1.0)

    def close(self) -> None:
        for process in [*self._producers, *self._workers]:
            process.kill()
            process.wait()
