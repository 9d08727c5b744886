"""Load a broker for a given time and check that it does not grow: `make soak TIME=7200`.

    python -m tools.soak --seconds 7200

The load: persistent messages at a fixed rate through one queue, transient ones through another,
clients that connect, declare, publish, consume and disconnect all the time, and scrapes of the
metrics. After a warm-up, which fills caches and the allocator's arenas, the mean memory of the last
third may exceed that of the first third by `GROWTH_MAX`, and the highest number of descriptors by
`DESCRIPTORS_MAX`. The exit code is 1 if one of them has grown by more. Less memory is no fault: the
kernel may take back pages of programs and libraries.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from tools.ports import HOST
from tools.server import Server

GROWTH_MAX: Final = 0.05  # share of the memory
DESCRIPTORS_MAX: Final = 4  # log files come and go
WARM_UP: Final = 0.25  # share of the time
SAMPLE_S: Final = 1.0
CLIENTS: Final = 5  # short-lived clients between two samples
LOADS: Final = (
    ("--persistent", "--confirm", "200", "--prefetch", "200", "--rate", "1000", "--size", "1k"),
    ("--rate", "2000", "--size", "16,4k", "--producers", "4", "--consumers", "4"),
)


@dataclass
class Sample:
    """One measurement."""

    memory_mb: float
    descriptors: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="leveret-soak-"))
    with (folder / "stderr").open("w") as log:
        server = Server(folder / "data", log)
        server.start()
        loads = [_start_load(server.port, options.seconds, flags) for flags in LOADS]
        try:
            samples = _sample(server, options.seconds)
            codes = [load.wait(60) for load in loads]
        finally:
            for load in loads:
                load.kill()
            server.stop()
    print(f"log of the broker: {folder / 'stderr'}")
    if any(codes):
        print(f"a load has failed: exit codes {codes}")
        return 1
    shutil.rmtree(folder / "data")
    return _judge(samples)


def _start_load(port: int, seconds: float, flags: tuple[str, ...]) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "leveret",
        "perf",
        "--uri",
        f"amqp://guest:guest@{HOST}:{port}",
    ]
    return subprocess.Popen(
        [*command, "--seconds", str(int(seconds)), *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _sample(server: Server, seconds: float) -> list[Sample]:
    """Measure the broker, scrape it, and let short-lived clients come and go."""
    samples: list[Sample] = []
    end_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < end_s:
        for number in range(CLIENTS):
            _come_and_go(server, f"soak-{number}")
        with urllib.request.urlopen(f"http://{HOST}:{server.http_port}/metrics", timeout=30) as got:
            got.read()
        samples.append(Sample(server.memory_mb(), server.descriptors()))
        time.sleep(max(0.0, now_s + SAMPLE_S - time.monotonic()))
    return samples


def _come_and_go(server: Server, name: str) -> None:
    connection = server.connect()
    channel = connection.channel()
    channel.call("queue.declare", queue=name, durable=True)
    channel.publish("", name, os.urandom(1000), {"delivery_mode": 2})
    channel.get_soon(name)
    channel.call("queue.delete", queue=name)
    connection.close()


def _judge(samples: list[Sample]) -> int:
    measured = samples[int(len(samples) * WARM_UP) :]
    third = max(1, len(measured) // 3)
    early, late = measured[:third], measured[-third:]
    before_mb = fmean(sample.memory_mb for sample in early)
    after_mb = fmean(sample.memory_mb for sample in late)
    growth = after_mb / before_mb - 1
    opened = max(s.descriptors for s in late) - max(s.descriptors for s in early)
    print(f"{len(samples)} samples; memory {before_mb:.1f} -> {after_mb:.1f} MB ({growth:+.1%})")
    print(f"descriptors: {opened:+d}")
    return 1 if growth > GROWTH_MAX or opened > DESCRIPTORS_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
