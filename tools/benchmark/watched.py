"""What it costs a broker of 10,000 queues to be watched while it works.

A load runs on one queue, plainly and while somebody scrapes `/metrics/per-object` and lists
`/api/queues` every second. The two follow each other in pairs, each pair in the other order, so
that both see the same moods of the machine; the median of the pairs counts.
"""

import base64
import http.client
import threading
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from leveret.perf.client import Client
from leveret.perf.load import Load
from leveret.perf.protocol import Parser
from tools.benchmark.bounds import Figures
from tools.benchmark.brokers import Broker
from tools.benchmark.measure import generate
from tools.ports import HOST

QUEUES: Final = 10_000
PAIRS: Final = 5
SECONDS_MIN: Final = 3.0  # a shorter load would see the watcher only once or twice
EVERY_S: Final = 1.0
SCRAPE: Final = "/metrics/per-object"
LIST: Final = "/api/queues"
_LOGIN: Final = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


class Watcher(threading.Thread):
    """Asks for everything, every second."""

    def __init__(self, port: int, paths: tuple[str, ...] = (SCRAPE, LIST)) -> None:
        super().__init__(daemon=True)
        self.times_s: dict[str, list[float]] = {path: [] for path in paths}
        self._client = http.client.HTTPConnection(HOST, port, timeout=60)
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            began_s = time.monotonic()
            for path, times_s in self.times_s.items():
                times_s.append(self.ask(path))
            self._is_over.wait(max(0.0, began_s + EVERY_S - time.monotonic()))

    def ask(self, path: str) -> float:
        """Ask once; how long the whole answer took."""
        began_s = time.monotonic()
        self._client.request("GET", path, headers=_LOGIN)
        answer = self._client.getresponse()
        while answer.read(1 << 20):
            pass
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return time.monotonic() - began_s

    def end(self) -> None:
        self._is_over.set()
        self.join()
        self._client.close()


def measure_watched(load: Load, broker: Broker, seconds: float, directory: Path) -> Figures:
    """Rates with and without a watcher, and how long its answers take."""
    _declare(broker, QUEUES)
    load = replace(load, seconds=max(seconds, SECONDS_MIN))
    plain: list[float] = []
    watched: list[float] = []
    scrapes_s: list[float] = []
    lists_s: list[float] = []
    for number in range(PAIRS):
        for is_watched in (False, True) if number % 2 == 0 else (True, False):
            watcher = Watcher(broker.http_port) if is_watched else None
            if watcher is not None:
                watcher.start()
            rate = generate(load, broker, directory)["receive_rate"]
            (watched if is_watched else plain).append(rate)
            if watcher is not None:
                watcher.end()
                scrapes_s += watcher.times_s[SCRAPE]
                lists_s += watcher.times_s[LIST]
    return {
        "rate": median(watched),
        "kept": median(ours / other for ours, other in zip(watched, plain, strict=True)),
        "scrape_s": median(scrapes_s),
        "list_s": median(lists_s),
        "memory_mb": broker.memory_mb(),
    }


def _declare(broker: Broker, count: int) -> None:
    load = Load(host=HOST, port=broker.port)
    control = Client(load, Parser())
    for number in range(count):
        control.declare(f"leveret.bench.idle-{number}", load)
    control.close()
