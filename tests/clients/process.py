"""A child process whose output is kept and can be waited for.

It owns the process group of the child, so that a worker's own children die with it, and reads the
output in a thread, so that the child never blocks on a full pipe. Waiting is by notification; each
wait has a deadline and fails with the whole output, because that is what one needs to see then.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

STOP_TIMEOUT_S: Final = 180.0
WAIT_TIMEOUT_S: Final = 180.0


class Child:
    """One child process in a session of its own."""

    def __init__(
        self,
        command: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            cwd=cwd,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._ended = False  # set when the output reached its end
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str, timeout_s: float = WAIT_TIMEOUT_S) -> re.Match[str]:
        """The first match of `pattern` in any line so far or to come."""
        expression = re.compile(pattern)
        deadline_s = time.monotonic() + timeout_s
        seen_count = 0
        with self._changed:
            while True:
                for line in self._lines[seen_count:]:
                    if match := expression.search(line):
                        return match
                seen_count = len(self._lines)
                left_s = deadline_s - time.monotonic()
                if self._ended or left_s <= 0:
                    why = "ended" if self._ended else f"took over {timeout_s} s"
                    raise AssertionError(f"{why} before {pattern!r}:\n{self.output()}")
                self._changed.wait(left_s)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def output(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def wait(self, timeout_s: float = WAIT_TIMEOUT_S) -> int:
        """The exit code, when the child ends by itself."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not end within {timeout_s} s:\n{self.output()}") from None
        self._close()
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send the child, and nobody else, a signal."""
        self._process.send_signal(number)

    def stop(self) -> int:
        """Ask the child to end (SIGTERM); kill it when it does not."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._close()
        return self._process.returncode

    def kill(self) -> None:
        """End the child and all of its children at once (SIGKILL), if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_TIMEOUT_S)
        self._close()

    def _close(self) -> None:
        self._reader.join(STOP_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
