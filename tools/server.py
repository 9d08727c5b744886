"""A `leveret serve` process that comes and goes on the same data, for tools that kill it.

Started with the package that this Python imports, in whichever form that is. Ports are free ones,
new after every start unless they are given; `connect` waits until there is a broker.
"""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Final

from tests.compat.client import Connection, NoAnswerError, connect
from tools.ports import HOST

START_WITHIN_S: Final = 180.0
SERVE: Final = ("-m", "leveret", "serve")
_READY: Final = re.compile(r"leveret ready amqp=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+)")


class Server:
    """A broker process."""

    def __init__(
        self,
        data: Path,
        log: IO[str],
        command: tuple[str, ...] = SERVE,
        ports: tuple[int, int] = (0, 0),
    ) -> None:
        self._ports = ports  # AMQP and HTTP; 0 = a free one
        self.http_port = 0
        self._data = data
        self._log = log  # gets what the broker says on stderr
        self._command = command  # what Python is to run
        self._process: subprocess.Popen[str] | None = None
        self._is_up = threading.Condition()
        self.port = 0  # 0 = there is no broker
        self.start_s = 0.0  # from the start of the process to its ready line
        self.start_cpu_s = 0.0  # the CPU time that it took for that

    def start(self) -> None:
        """Start it and wait for the ready line. RuntimeError where that does not come."""
        started_s = time.monotonic()
        process = self._spawn()
        assert process.stdout is not None
        ready = _READY.match(process.stdout.readline())
        self.start_s = time.monotonic() - started_s
        if ready is None:
            self.kill()
            raise RuntimeError("the broker did not start")
        self.start_cpu_s = self.cpu_s()
        with self._is_up:
            self.port = int(ready[1])
            self.http_port = int(ready[2])
            self._is_up.notify_all()

    def start_and_kill(self, after_s: float) -> None:
        """Start it and kill it, perhaps before it is ready. Nobody gets a connection."""
        self._spawn()
        time.sleep(after_s)
        self.kill()

    def _spawn(self) -> subprocess.Popen[str]:
        amqp, http = map(str, self._ports)
        flags = ["--data", str(self._data), "--amqp-port", amqp, "--http-port", http]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        self._process = subprocess.Popen(
            [sys.executable, *self._command, *flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=clean,
        )
        return self._process

    def kill(self) -> None:
        """`kill -9`."""
        self._gone().kill()
        self._wait()

    def stop(self) -> int:
        """End it politely; its exit code."""
        self._gone().terminate()
        return self._wait()

    def _gone(self) -> subprocess.Popen[str]:
        assert self._process is not None
        with self._is_up:
            self.port = 0
        return self._process

    def _wait(self) -> int:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        code = process.wait(START_WITHIN_S)
        process.stdout.close()
        return code

    def connect(self) -> Connection:
        """A connection to the broker as soon as there is one."""
        with self._is_up:
            if not self._is_up.wait_for(lambda: self.port != 0, START_WITHIN_S):
                raise NoAnswerError("the broker is gone")
            port = self.port
        return connect(HOST, port)

    def cpu_s(self) -> float:
        """CPU time that the process has used, all threads together."""
        assert self._process is not None
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Memory that the process occupies."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024 / 1e6

    def descriptors(self) -> int:
        """Open file descriptors of the process."""
        assert self._process is not None
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))
