"""`make soak-bus`: a bus that publishes a million events and loses its broker a thousand times.

    python -m tools.soak_bus --publishes 1000000 --reconnects 1000

Everything is published, handled and confirmed by one bus in this process; the broker and the proxy
whose resets make it reconnect are processes of their own, so that the memory measured is the bus's.
After a warm-up, which fills caches and the allocator's arenas, memory may grow by GROWTH_MB_MAX.
`--trace` measures by tracemalloc, slowly, and prints the lines whose memory grew.
"""

import argparse
import asyncio
import ctypes
import gc
import json
import logging
import os
import signal
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from leveret.bus import Bus, BusSettings, fanout
from tests.bus.nodes import Leveret, Node, RabbitMQ
from tests.clients.process import Child
from tools.chaos_bus.proxy import HOST, Proxy

GROWTH_MB_MAX: Final = 5.0
WARM_UP: Final = 0.05  # share of the work
ROOT: Final = Path(__file__).resolve().parents[1]
CONFIRM_S: Final = 60.0
RECONNECT_S: Final = 30.0
POLL_S: Final = 0.002
SAMPLES: Final = 20
BROKERS: Final = {"leveret": Leveret, "rabbitmq": RabbitMQ}
# A short backoff: otherwise sessions that end at once would be reopened ever more slowly.
SETTINGS: Final = BusSettings(concurrency=64, backoff_s_min=0.005, backoff_s_max=0.02)
# Classes of which a bus has a fixed number of objects, however often it connected.
MODULES: Final = ("aio", "leveret.bus", "asyncio", "_asyncio", "threading")
WATCHED: Final = ("Connection", "Channel", "Task", "StreamReader", "ConsumingSession", "Thread")


@dataclass
class Tick:
    """The event."""

    number: int
    text: str = "x" * 100


@dataclass
class Account:
    """Measurements of the soak."""

    handled: int = 0
    memory_mb: list[float] = field(default_factory=list)  # after the warm-up, then at intervals
    objects: list[Counter[str]] = field(default_factory=list)  # likewise

    @property
    def growth_mb(self) -> float:
        """Memory growth from the end of the warm-up to the end."""
        return self.memory_mb[-1] - self.memory_mb[0]


class Soak:
    """A bus under steady work."""

    def __init__(self, url: str, proxy: Child, *, traces: bool = False) -> None:
        self._proxy = proxy
        self._traces = traces
        self._number = 0
        self._unhandled: set[int] = set()
        self._all_handled = asyncio.Event()
        self.account = Account()
        self.bus = Bus(url, fanout.layout("soak-bus"), settings=SETTINGS)
        self.bus.on(Tick)(self._handle)

    async def _handle(self, event: Tick) -> None:
        self.account.handled += 1
        self._unhandled.discard(event.number)  # a reset may bring it twice
        if not self._unhandled:
            self._all_handled.set()

    async def work(self, publishes: int, reconnects: int) -> None:
        """Publish so many messages with resets in between, and wait until all are handled."""
        rounds = max(reconnects, 1)
        for number in range(rounds):
            share = publishes * (number + 1) // rounds - publishes * number // rounds
            for _ in range(share):
                await self.bus.send(self._next_tick())
            if not await self.bus.wait_for_confirms(CONFIRM_S):
                raise RuntimeError(f"not confirmed: {self.bus.take_failures()[:3]}")
            if number < reconnects:
                await self._reconnect()
        await self.bus.publish(self._next_tick())  # the last reset closed its connection
        async with asyncio.timeout(CONFIRM_S):
            await self._all_handled.wait()

    def _next_tick(self) -> Tick:
        self._number += 1
        self._unhandled.add(self._number)
        self._all_handled.clear()
        return Tick(self._number)

    async def _reconnect(self) -> None:
        """Reset all connections and wait until the bus is healthy."""
        self._proxy.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(RECONNECT_S):
            for wanted in (False, True):
                while (await self.bus.health()).is_consuming is not wanted:  # noqa: ASYNC110 asks
                    await asyncio.sleep(POLL_S)

    def measure(self) -> None:
        """Measure memory and objects after a garbage collection."""
        gc.collect()
        if self._traces:
            used = tracemalloc.get_traced_memory()[0]
        else:
            ctypes.CDLL(None).malloc_trim(0)  # give free memory back to the system
            used = _resident_bytes()
        self.account.memory_mb.append(used / 2**20)
        kinds = map(type, gc.get_objects())
        names = Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith(MODULES))
        self.account.objects.append(Counter({name: names[name] for name in WATCHED}))


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def soaking(node: Node, *, traces: bool = False) -> AsyncIterator[Soak]:
    """Run a bus behind a proxy in a process of its own."""
    command = [sys.executable, "-m", "tools.soak_bus", "--proxy", str(node.port)]
    proxy = Child(command, cwd=ROOT)
    try:
        port = int(proxy.wait_for(r"^proxy (\d+)$")[1])
        soak = Soak(f"amqp://guest:guest@{HOST}:{port}/", proxy, traces=traces)
        async with soak.bus:
            yield soak
    finally:
        proxy.kill()


async def _serve_proxy(broker_port: int) -> None:
    proxy = Proxy(broker_port)
    await proxy.start()

    def reset() -> None:
        for passage in list(proxy.passages):
            passage.reset()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, reset)
    print(f"proxy {proxy.port}", flush=True)
    await asyncio.Event().wait()


async def _run(node: Node, asked: argparse.Namespace) -> Account:
    async with soaking(node, traces=asked.trace) as soak:
        warm = WARM_UP
        await soak.work(round(asked.publishes * warm), max(1, round(asked.reconnects * warm)))
        soak.measure()
        before = tracemalloc.take_snapshot() if asked.trace else None
        for sample in range(SAMPLES):
            await soak.work(asked.publishes // SAMPLES, asked.reconnects // SAMPLES)
            soak.measure()
            print(
                f"{(sample + 1) * 100 // SAMPLES} %: {soak.account.memory_mb[-1]:.2f} MiB, "
                f"{dict(soak.account.objects[-1])}",
                file=sys.stderr,
                flush=True,
            )
        if before is not None:
            _print_growth(before)
        return soak.account


def _print_growth(before: tracemalloc.Snapshot) -> None:
    for line in tracemalloc.take_snapshot().compare_to(before, "lineno")[:20]:
        print(line, file=sys.stderr)


def main() -> int:
    """Run the soak. Return 1 if the memory grew too much."""
    asked = _asked()
    if asked.proxy:
        asyncio.run(_serve_proxy(asked.proxy))
        return 0
    logging.disable()  # a thousand resets would log thousands of lines
    if asked.trace:
        tracemalloc.start(5)
    node: Node = BROKERS[asked.broker]()
    try:
        node.start()
        account = asyncio.run(_run(node, asked))
    finally:
        node.close()
    row: dict[str, Any] = {
        "broker": asked.broker,
        "publishes": asked.publishes,
        "reconnects": asked.reconnects,
        "handled": account.handled,
        "memory_mb": round(account.memory_mb[-1], 2),
        "growth_mb": round(account.growth_mb, 2),
        "growth_mb_max": GROWTH_MB_MAX,
    }
    print(json.dumps(row))
    return 0 if account.growth_mb < GROWTH_MB_MAX else 1


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak_bus", description=__doc__)
    parser.add_argument("--publishes", type=int, default=1_000_000)
    parser.add_argument("--reconnects", type=int, default=1_000)
    parser.add_argument("--broker", default="leveret", choices=list(BROKERS))
    parser.add_argument("--trace", action="store_true", help="by tracemalloc: slow, says where")
    parser.add_argument("--proxy", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
