"""`make bench-profile`: where the CPU time of a message goes.

Runs scenarios on Leveret while `perf` samples the stacks of the broker. Each sample gets one cause:
the first in `CAUSES` that matches a function of the stack, from the innermost outwards, or else the
function or library of the innermost frame. The result is a table of CPU per message by cause. It
works without hardware counters, because it samples the clock.
"""

import argparse
import collections
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tools.benchmark import machine
from tools.benchmark.brokers import Broker, leveret
from tools.benchmark.main import print_conditions
from tools.benchmark.measure import figures_of, start_generator, take_result, warm_up
from tools.benchmark.scenarios import LOAD, Scenario, choose
from tools.rabbitmq import UnavailableError

DIRECTORY: Final = machine.ROOT / "build" / "profile"
ROWS: Final = "transient-ack,persistent,persistent-2000,persistent-1k,burst,stream"
SAMPLES_PER_S: Final = 2000
STARTS_S: Final = 0.5  # time for the load to start

# A cause, and the pattern of function names that identifies it.
CAUSES: Final = (
    ("thread hand-over and sleeping", r"futex|schedule|finish_task_switch|eventfd|pthread_cond"),
    ("disk: write", r"pwritev|vfs_writev|ext4_buffered_write|generic_perform_write"),
    ("disk: sync", r"fdatasync|fsync|ext4_sync_file"),
    ("sockets: receive", r"tcp_recvmsg|sock_recvmsg|ksys_read|__libc_read"),
    ("sockets: send", r"tcp_sendmsg|sock_sendmsg|ksys_write|__libc_write|sendmsg|net_rx_action"),
    ("sockets: wait", r"epoll|ep_poll|uv__io_poll"),
    ("checksum", r"crc32"),
)
# Without a match: by the function or library of the innermost frame.
EVALUATION: Final = r"_PyEval|PyFunction|GetAttr|GetMethod|_PyType_Lookup|vectorcall|PyObject_Call"
LIBRARIES: Final = (
    ("compiled core", r"mypyc|librt|strings\.cpython"),
    ("event loop (uvloop)", r"uvloop|loop\.cpython"),
    ("copying and memory", r"libc\.so"),
    ("interpreter", EVALUATION),
    ("objects: made, grown, freed", r"libpython|python3"),
    ("kernel, other", r"kernel|vdso"),
)
OTHER: Final = "other"
_FRAME: Final = re.compile(r"^\s+[0-9a-f]+ (?P<name>.*) \((?P<library>[^()]*)\)$")


def main(argv: Sequence[str] | None = None) -> int:
    """Profile the scenarios and return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench-profile", description=__doc__)
    parser.add_argument("--rows", default=ROWS, metavar="KEY,…", help="scenarios, by key")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each load (4)")
    options = parser.parse_args(argv)
    if shutil.which("perf") is None:
        print("bench-profile: perf is missing: apt-get install linux-perf", file=sys.stderr)
        return 1
    chosen = [each for each in choose(options.rows) if each.kind == LOAD and not each.why_not]
    print_conditions()
    columns: dict[str, dict[str, float]] = {}
    try:
        for scenario in chosen:
            columns[scenario.name] = profile(scenario, options.seconds)
    except UnavailableError as fault:
        print(f"bench-profile: {fault}", file=sys.stderr)
        return 1
    print(table(columns))
    return 0


def profile(scenario: Scenario, seconds: float) -> dict[str, float]:
    """Return the broker's CPU time per message in µs, by cause."""
    assert scenario.load is not None
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    with leveret(DIRECTORY) as broker:
        warm_up(broker, DIRECTORY)
        load = replace(scenario.load, seconds=seconds)
        before_s = broker.cpu_s()
        generator = start_generator(load, broker, DIRECTORY)
        time.sleep(STARTS_S)
        recording = _record(broker, seconds - 2 * STARTS_S)
        counts = collections.Counter(cause_of(stack) for stack in stacks(_script(recording)))
        found = take_result(generator, broker, load)
        figures = figures_of(found, broker.cpu_s() - before_s)
    total = max(1, sum(counts.values()))
    return {cause: figures["cpu_us"] * count / total for cause, count in counts.items()}


def _record(broker: Broker, seconds: float) -> Path:
    """Sample the broker's stacks for some seconds. Return the recording."""
    path = DIRECTORY / "samples.perf"
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "-g"]
    command += ["-p", str(broker.pid), "-o", str(path), "sleep", str(seconds)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def _script(recording: Path) -> list[str]:
    command = ["perf", "script", "-i", str(recording), "-F", "ip,sym,dso"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
    return found.stdout.splitlines()


def stacks(lines: Iterable[str]) -> Iterator[list[tuple[str, str]]]:
    """Parse the output of `perf script`: stacks of (function, library), innermost first."""
    stack: list[tuple[str, str]] = []
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            stack.append((frame["name"], frame["library"]))
        elif stack:
            yield stack
            stack = []
    if stack:
        yield stack


def cause_of(stack: list[tuple[str, str]]) -> str:
    """Return the cause of a sample."""
    for name, _ in stack:
        for cause, pattern in CAUSES:
            if re.search(pattern, name):
                return cause
    place = " ".join(stack[0])
    return next((cause for cause, pattern in LIBRARIES if re.search(pattern, place)), OTHER)


def table(columns: dict[str, dict[str, float]]) -> str:
    """Causes in rows, scenarios in columns, as Markdown; the last row is the sum."""
    order = [cause for cause, _ in (*LIBRARIES, *CAUSES)] + [OTHER]
    lines = [
        f"| µs of CPU per message | {' | '.join(columns)} |",
        "| --- |" + " --- |" * len(columns),
    ]
    for cause in order:
        cells = [column.get(cause, 0.0) for column in columns.values()]
        if any(cell >= 0.005 for cell in cells):
            lines.append(f"| {cause} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    sums = [sum(column.values()) for column in columns.values()]
    lines.append(f"| **all** | {' | '.join(f'**{each:.2f}**' for each in sums)} |")
    return "\n".join(lines)
