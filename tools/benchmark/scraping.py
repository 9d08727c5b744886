"""How much a client that reads metrics slows down a broker with 10,000 queues.

A load runs on one queue, with and without a client that reads `/metrics/per-object` and
`/api/queues` every second. Runs alternate in pairs, each pair in the other order, so that both see
the same load of the machine. The result is the median of the pairs.
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
from tools.benchmark.brokers import Broker
from tools.benchmark.measure import generate
from tools.benchmark.measures import Figures
from tools.ports import HOST

QUEUES: Final = 10_000
PAIRS: Final = 5
SECONDS_MIN: Final = 3.0  # a shorter load would see only one or two scrapes
EVERY_S: Final = 1.0
SCRAPE: Final = "/metrics/per-object"
LIST: Final = "/api/queues"
_LOGIN: Final = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


class Scraper(threading.Thread):
    """A thread that reads all paths every second."""

    def __init__(self, port: int, paths: tuple[str, ...] = (SCRAPE, LIST)) -> None:
        super().__init__(daemon=True)
        self.times_s: dict[str, list[float]] = {path: [] for path in paths}
        self._client = http.client.HTTPConnection(HOST, port, timeout=60)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            began_s = time.monotonic()
            for path, times_s in self.times_s.items():
                times_s.append(self.read(path))
            self._stopping.wait(max(0.0, began_s + EVERY_S - time.monotonic()))

    def read(self, path: str) -> float:
        """Read a path once. Return the seconds until the whole answer was read."""
        began_s = time.monotonic()
        self._client.request("GET", path, headers=_LOGIN)
        answer = self._client.getresponse()
        while answer.read(1 << 20):
            pass
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return time.monotonic() - began_s

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._client.close()


def measure_scraped(load: Load, broker: Broker, seconds: float, directory: Path) -> Figures:
    """Return the rates with and without the scraping client, and its response times."""
    _declare(broker, QUEUES)
    load = replace(load, seconds=max(seconds, SECONDS_MIN))
    plain: list[float] = []
    scraped: list[float] = []
    scrapes_s: list[float] = []
    lists_s: list[float] = []
    for number in range(PAIRS):
        for is_scraped in (False, True) if number % 2 == 0 else (True, False):
            scraper = Scraper(broker.http_port) if is_scraped else None
            if scraper is not None:
                scraper.start()
            rate = generate(load, broker, directory)["receive_rate"]
            (scraped if is_scraped else plain).append(rate)
            if scraper is not None:
                scraper.stop()
                scrapes_s += scraper.times_s[SCRAPE]
                lists_s += scraper.times_s[LIST]
    return {
        "rate": median(scraped),
        "kept": median(ours / other for ours, other in zip(scraped, plain, strict=True)),
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
