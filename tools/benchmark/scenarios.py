"""The scenarios, and the bounds that Leveret must meet in them.

A scenario is one load for `leveret.perf`, two loads at once, or a sequence of steps on a separate
broker. `ROWS=` selects scenarios by `key`. `must` has today's bounds, `goal` the value to reach.
A scenario that cannot be measured on this machine is skipped with a reason (`why_not`).
"""

from dataclasses import dataclass, field
from typing import Final

from leveret.perf.load import Load
from tools import certificates
from tools.benchmark.measures import Bound

# Kinds of scenarios. SCRAPED and BACKLOG get their own broker; the others share one.
LOAD: Final = "load"
IDLE: Final = "idle"  # before any load
HALF: Final = "half"  # the load at half of its maximum rate
SCRAPED: Final = "scraped"  # with and without a client that reads all metrics, see `scraping`
BACKLOG: Final = "backlog"  # fill a queue, kill the broker, start it again, drain the queue


@dataclass(frozen=True)
class Scenario:
    """One scenario: a row of the result table."""

    key: str
    name: str
    load: Load | None
    shows: tuple[str, ...]
    must: tuple[Bound, ...] = field(default=())
    goal: str = ""
    kind: str = LOAD
    beside: Load | None = None  # a second load with a rate, at the same time on the same queue
    figure: str = ""  # of BACKLOG: the step that this row shows

    @property
    def why_not(self) -> str:
        """Reason why it cannot be measured; empty if it can."""
        return certificates.why_not() if self.is_secured else ""

    @property
    def is_secured(self) -> bool:
        """True if its load uses TLS."""
        return self.load is not None and self.load.tls


_FLOW: Final = ("rate", "share", "cpu_us", "p50_us", "p95_us", "p99_us", "memory_mb")
_SYNCED: Final = (*_FLOW, "sync_us")
_LATENCY: Final = ("rate", "cpu_us", "p50_us", "p95_us", "p99_us")
_FAIR: Final = ("rate", "share", "cpu_us", "fair", "p50_us", "p99_us")
_SHARE_90_PERCENT: Final = Bound("share", least=0.9)
_LOW_LATENCY: Final = (Bound("p50_us", most=100), Bound("p99_us", ratio_most=1))

_PERSISTENT: Final = Load(persistent=True, confirm_window=200, prefetch=200)

SCENARIOS: Final = (
    Scenario(
        "start",
        "start to accepting",
        None,
        ("start_s",),
        (Bound("start_s", most=0.5),),
        "≤ 0.2 s",
        IDLE,
    ),
    Scenario(
        "memory",
        "memory when idle",
        None,
        ("memory_mb",),
        (Bound("memory_mb", most=80),),
        "50 MB",
        IDLE,
    ),
    Scenario(
        "transient",
        "transient, auto-ack",
        Load(),
        _FLOW,
        (Bound("cpu_us", most=1.7), Bound("rate", least=453_000, ratio_least=6)),
        "≤ 1.0 µs",
    ),
    Scenario(
        "transient-ack",
        "transient, ack 200, publisher unthrottled",
        Load(prefetch=200),
        _FLOW,
        (Bound("cpu_us", most=2), _SHARE_90_PERCENT),
        "≤ 1.2 µs",
    ),
    Scenario(
        "transient-confirm",
        "transient, confirms 200, ack 200",
        Load(confirm_window=200, prefetch=200),
        _FLOW,
    ),
    Scenario(
        "persistent",
        "persistent, confirms 200, ack 200",
        _PERSISTENT,
        _SYNCED,
        (Bound("cpu_us", most=5), Bound("rate", ratio_least=3, ratio_least_fast_sync=5)),
        "≤ 3.5 µs",
    ),
    Scenario(
        "persistent-2000",
        "persistent, confirms 2000, ack 200",
        Load(persistent=True, confirm_window=2000, prefetch=200),
        _SYNCED,
        (Bound("cpu_us", most=2.5), _SHARE_90_PERCENT),
        "≤ 1.5 µs",
    ),
    Scenario(
        "persistent-1k",
        "persistent, 1 KiB, confirms 200, ack 200",
        Load(persistent=True, confirm_window=200, prefetch=200, sizes=(1024,)),
        _SYNCED,
        (Bound("cpu_us", most=8),),
        "≤ 5 µs",
    ),
    Scenario(
        "4x4x4",
        "4 producers, 4 consumers, 4 queues, confirms 2000, persistent",
        Load(
            persistent=True, producers=4, consumers=4, queues=4, confirm_window=2000, prefetch=200
        ),
        _SYNCED,
        (Bound("cpu_us", most=3), _SHARE_90_PERCENT),
        "≤ 2 µs",
    ),
    Scenario(
        "fan-in",
        "fan-in 10 to 1, confirms 2000, ack 200, persistent",
        Load(persistent=True, producers=10, confirm_window=2000, prefetch=200),
        (*_SYNCED, "fair"),
        (_SHARE_90_PERCENT,),
    ),
    Scenario(
        "burst",
        "burst 1, prefetch 1, ack each message",
        Load(burst=1, prefetch=1),
        _FLOW,
        (Bound("rate", ratio_least=5),),
    ),
    Scenario(
        "tls",
        "TLS, transient, ack 200",
        Load(prefetch=200, tls=True, tls_verify=False),
        _FLOW,
        (Bound("rate", ratio_least=3),),
    ),
    Scenario(
        "quorum",
        "quorum queue on one node, confirms 200, ack 200",
        Load(persistent=True, queue_type="quorum", confirm_window=200, prefetch=200),
        _SYNCED,
        (Bound("rate", ratio_least=3),),
        "≥ 8× RabbitMQ",
    ),
    Scenario(
        "stream",
        "stream, confirms 200, ack 200",
        Load(persistent=True, queue_type="stream", confirm_window=200, prefetch=200),
        _SYNCED,
        (Bound("rate", ratio_least=4),),
        "≥ 10× RabbitMQ",
    ),
    Scenario(
        "large",
        "body 300 KiB, confirms 20, ack 20",
        Load(sizes=(307_200,), confirm_window=20, prefetch=20, burst=4),
        _FLOW,
        (Bound("rate", ratio_least=1),),
    ),
    Scenario(
        "latency",
        "latency at 2,000/s, one at a time",
        Load(rate=2000, prefetch=200, burst=1),
        _LATENCY,
        _LOW_LATENCY,
        "p50 ≤ 50 µs",
    ),
    Scenario(
        "latency-32",
        "latency at 2,000/s, 32 at once",
        Load(rate=2000, prefetch=200),
        _LATENCY,
        (Bound("p50_us", ratio_most=1), Bound("p99_us", ratio_most=1)),
    ),
    Scenario(
        "latency-half",
        "latency at half of the maximum, confirms 200, ack 200",
        Load(confirm_window=200, prefetch=200),
        _LATENCY,
        kind=HALF,
    ),
    Scenario(
        "fair-publishers",
        "fairness: 10 publishers, 1 acking consumer",
        Load(producers=10, prefetch=200, confirm_window=200),
        _FAIR,
        (_SHARE_90_PERCENT,),
    ),
    Scenario(
        "fair-greedy",
        "fairness: 1 greedy and 10 modest publishers (2,000/s)",
        Load(prefetch=200),
        _FAIR,
        beside=Load(producers=10, consumers=0, rate=2000, burst=1),
    ),
    Scenario(
        "fair-slow",
        "fairness: 3 fast consumers and a slow one (500/s)",
        Load(consumers=3, prefetch=200, confirm_window=200),
        _FAIR,
        beside=Load(producers=0, prefetch=10, consumer_rate=500),
    ),
    Scenario(
        "watched",
        "scrape and queue list with 10,000 queues, every second under load",
        Load(confirm_window=200, prefetch=200),
        ("rate", "kept", "scrape_s", "list_s", "memory_mb"),
        (Bound("kept", least=0.9), Bound("scrape_s", most=1)),
        kind=SCRAPED,
    ),
    Scenario(
        "backlog-memory",
        "memory with 1 M × 1 KiB waiting",
        None,
        ("memory_mb",),
        (Bound("memory_mb", most=150),),
        "80 MB",
        BACKLOG,
        figure="waiting",
    ),
    Scenario(
        "backlog-restart",
        "restart after kill -9 with 1 M × 1 KiB waiting",
        None,
        ("start_s", "memory_mb"),
        (Bound("start_s", most=1),),
        "≤ 0.4 s",
        BACKLOG,
        figure="restart",
    ),
    Scenario(
        "backlog-drain",
        "drain 1 M × 1 KiB, one consumer, ack 200",
        None,
        ("rate", "cpu_us", "memory_mb"),
        (Bound("rate", ratio_least=8),),
        "LavinMQ's 290–490k/s",
        BACKLOG,
        figure="drain",
    ),
)


def choose(rows: str) -> list[Scenario]:
    """Return the scenarios that a comma-separated list names, by key or by part of the name.

    An empty list means all but the backlog scenarios, which take minutes. `all` means all.
    """
    words = [word.strip().lower() for word in rows.split(",") if word.strip()]
    if not words:
        return [scenario for scenario in SCENARIOS if scenario.kind != BACKLOG]
    return [s for s in SCENARIOS if any(_matches(word, s) for word in words)]


def _matches(word: str, scenario: Scenario) -> bool:
    if word == "all":
        return True
    return (
        scenario.key == word or scenario.key.startswith(f"{word}-") or word in scenario.name.lower()
    )
