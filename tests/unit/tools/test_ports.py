"""Ports for servers that are started later: nobody else gets one meanwhile."""

import subprocess
import sys
from pathlib import Path

from tools import ports

ASKS = """
import sys
sys.path.insert(0, {root!r})
from tools import ports
print(*[ports.free_port() for _ in range({count})], flush=True)
sys.stdin.read()
"""
COUNT = 100


def test_processes_that_ask_at_once_get_different_ports() -> None:
    code = ASKS.format(root=str(Path(ports.__file__).parents[1]), count=COUNT)
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    found = [ports.free_port() for _ in range(COUNT)]
    for process in asking:
        assert process.stdout is not None
        found += map(int, process.stdout.readline().split())
    for process in asking:
        process.communicate()
    assert len(found) == len(set(found)) == 4 * COUNT


def test_a_port_is_none_that_the_system_may_give_to_somebody_else() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given.read_text().split()[0]) if given.exists() else 49_152
    assert all(ports.free_port() < first for _ in range(10))


def test_a_port_stays_claimed_before_and_after_somebody_listens_on_it() -> None:
    port = ports.free_port()
    code = ASKS.format(root=str(Path(ports.__file__).parents[1]), count=0)
    code += f"from leveret.testing.ports import _is_claimed\nprint(_is_claimed({port}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, input="", text=True, check=True
    )
    assert done.stdout.split() == ["False"]
