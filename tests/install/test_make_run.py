"""`make run` on a fresh clone: the broker is ready before the compiled form is built.

The C compiler of these tests waits until the test lets it go on. So the order of events does not
depend on the speed of the machine.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.install.clones import BASE_PYTHON, clone, compile_only, environment_with_everything

READY = re.compile(r"leveret ready amqp=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+)\n")
# Small, and imported by everything else.
COMPILED = "src/leveret/wire/*.py"
# A compiler that waits while the test holds the lock. Several may run at once. The speed of the
# compiled form does not matter here.
WAITING_COMPILER = """\
#!/bin/sh
case "$*" in *-fsyntax-only*) exec gcc "$@";; esac
exec flock --shared "$0.lock" gcc "$@" -O0
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="make run is for Linux")


class Clone:
    """A fresh clone whose packages are installed already."""

    def __init__(self, tree: Path) -> None:
        self.tree = clone(tree / "leveret")
        compile_only(self.tree, COMPILED)
        environment_with_everything(self.tree)
        self.compiler = tree / "waiting-cc"
        self.compiler.write_text(WAITING_COMPILER)
        self.compiler.chmod(0o755)
        self.lock = Path(f"{self.compiler}.lock").open("w")
        flock(self.lock, LOCK_EX)
        self.data = tree / "data"

    @contextmanager
    def running(self, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Run `make run`; end it and everything that it started."""
        ports = f"--amqp-port 0 --http-port 0 --data {self.data}"
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL") and "LEVERET_" not in name
        }
        with subprocess.Popen(
            ["make", "run", f"PYTHON={BASE_PYTHON}", f"ARGS={ports}"],
            cwd=self.tree,
            env={**inherited, "CC": str(self.compiler), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def let_compile(self) -> None:
        """Let all compilers go on."""
        self.lock.close()

    def leveret(self, *words: str) -> str:
        """Run the command of this clone, and return its output."""
        command = [str(self.tree / ".venv" / "bin" / "leveret"), *words]
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(command, env=clean, capture_output=True, text=True, check=True).stdout

    def version(self) -> str:
        """Return the version that a new command of this clone reports."""
        return self.leveret("--version")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Clone]:
    clone_of_test = Clone(tmp_path)
    yield clone_of_test
    clone_of_test.let_compile()


def lines_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """Return the lines up to the one with this pattern."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"no {pattern!r} in {''.join(lines)}")


def ports(lines: list[str]) -> tuple[int, int]:
    """Return the ports of a broker for AMQP and HTTP."""
    found = READY.search("".join(lines))
    assert found is not None, lines
    return int(found[1]), int(found[2])


def http_port(lines: list[str]) -> int:
    return ports(lines)[1]


def form_of(port: int) -> str:
    """Ask a broker which form it runs."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(r'leveret_build_info\{.*form="(\w+)"', text)
    assert found is not None, text
    return found[1]


def test_broker_is_ready_before_compilation_ends_and_compiled_at_next_start(fresh: Clone) -> None:
    with fresh.running() as process:
        port = http_port(lines_until(process, "leveret ready"))
        assert "pure Python" in fresh.version()
        fresh.let_compile()  # no C file was compiled before this line
        lines_until(process, "setup: compiled; used from the next start")
        assert form_of(port) == "interpreted", "the running broker keeps its files"
        assert "compiled" in fresh.version()
    with fresh.running() as process:
        lines = lines_until(process, "leveret ready")
        assert not [line for line in lines if "setup:" in line], "nothing is left to do"
        assert form_of(http_port(lines)) == "compiled"


def test_build_ends_with_broker(fresh: Clone) -> None:
    with fresh.running() as process:
        lines_until(process, "setup: building Leveret")
        os.killpg(process.pid, signal.SIGINT)  # Ctrl+C reaches make and the broker alone
        assert process.stdout is not None
        rest = process.stdout.read()  # ends when the last process has closed it
        assert "compiled;" not in rest
    assert "pure Python" in fresh.version()


def test_without_compiler_broker_runs_interpreted_and_says_so(fresh: Clone) -> None:
    tools = fresh.tree.parent / "bin"
    tools.mkdir()
    apt_get = tools / "apt-get"  # a machine without network
    apt_get.write_text("#!/bin/sh\nexit 1\n")
    apt_get.chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    with fresh.running(CC="no-such-compiler", PATH=path) as process:
        seen = "".join(lines_until(process, "leveret ready"))
        if "stays interpreted" not in seen:
            lines_until(process, "no C compiler or no headers of Python: Leveret stays interpreted")


def test_pure_form_is_not_built_and_its_commands_work(fresh: Clone) -> None:
    with fresh.running(LEVERET_PURE="1") as process:
        lines = lines_until(process, "leveret ready")
        assert "compiled form" not in "".join(lines)
        address = f"amqp://guest:guest@127.0.0.1:{ports(lines)[0]}/"
        measured = fresh.leveret("perf", "--uri", address, "--messages", "100", "--confirm", "10")
        assert re.search(r"received +100 ", measured), measured
