"""The scenarios, and the bounds that Leveret must meet in them.

A scenario is a load for `leveret.perf`, or no load at all where the broker by itself is measured.
`needs` names a part of Leveret without which the scenario says nothing; it is left out until that
part exists. A bound is absolute, or a ratio to RabbitMQ in the same run, or either of the two.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

from leveret.perf.load import Load

# Median of what was measured in the rounds, by the names of MEASURES.
Figures = dict[str, float]


@dataclass(frozen=True)
class Measure:
    """What a figure means and how it is shown."""

    title: str
    form: str
    unit: str = ""

    def show(self, value: float) -> str:
        return self.form.format(value)


MEASURES: Final = {
    "rate": Measure("received/s", "{:,.0f}", "/s"),
    "share": Measure("of sent", "{:.0%}"),
    "cpu_us": Measure("CPU µs", "{:,.2f}", " µs"),
    "p50_us": Measure("p50 µs", "{:,.0f}", " µs"),
    "p99_us": Measure("p99 µs", "{:,.0f}", " µs"),
    "start_s": Measure("start s", "{:.2f}", " s"),
    "memory_mb": Measure("MB", "{:.0f}", " MB"),
}


@dataclass(frozen=True)
class Bound:
    """One thing that must hold. With a number and a ratio, one of them is enough."""

    measure: str
    most: float | None = None
    least: float | None = None
    ratio_most: float | None = None  # of Leveret's figure to RabbitMQ's
    ratio_least: float | None = None

    def is_met(self, ours: Figures, theirs: Figures | None) -> bool | None:
        """None where it takes a RabbitMQ to tell and there is none."""
        value = ours[self.measure]
        if self.most is not None and value <= self.most:
            return True
        if self.least is not None and value >= self.least:
            return True
        if self.ratio_most is None and self.ratio_least is None:
            return False
        if theirs is None:
            return None
        other = theirs[self.measure]
        if self.ratio_most is not None:
            return value <= other * self.ratio_most
        assert self.ratio_least is not None
        return value >= other * self.ratio_least

    def __str__(self) -> str:
        measure = MEASURES[self.measure]
        wanted = [
            f"{sign} {measure.show(value)}{measure.unit}"
            for sign, value in (("≤", self.most), ("≥", self.least))
            if value is not None
        ] + [
            f"{sign} {ratio:g}× RabbitMQ"
            for sign, ratio in (("≤", self.ratio_most), ("≥", self.ratio_least))
            if ratio is not None
        ]
        return f"{measure.title} {' or '.join(wanted)}"


@dataclass(frozen=True)
class Scenario:
    """One row of the table."""

    name: str
    load: Load | None  # None: the broker alone, before any load
    shows: tuple[str, ...]
    must: tuple[Bound, ...] = field(default=())
    needs: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether the part that it needs exists."""
        return not self.needs or find_spec(f"leveret.{self.needs}") is not None


_FLOW: Final = ("rate", "share", "cpu_us")
_LATENCY: Final = ("rate", "cpu_us", "p50_us", "p99_us")
_NINE_TENTHS: Final = Bound("share", least=0.9)
_QUICK: Final = (Bound("p50_us", most=100), Bound("p99_us", ratio_most=1))
_MANY: Final = Load(producers=4, consumers=4, queues=4, confirm_window=2000, prefetch=200)

SCENARIOS: Final = (
    Scenario(
        "transient, auto-ack",
        Load(),
        _FLOW,
        (Bound("cpu_us", most=1.7), Bound("rate", least=453_000, ratio_least=6)),
    ),
    Scenario(
        "transient, ack 200, publisher unthrottled",
        Load(prefetch=200),
        _FLOW,
        (Bound("cpu_us", most=2), _NINE_TENTHS),
    ),
    Scenario(
        "transient, confirms 200, ack 200",
        Load(confirm_window=200, prefetch=200),
        _FLOW,
    ),
    Scenario(
        "burst 1, prefetch 1, ack each message",
        Load(burst=1, prefetch=1),
        _FLOW,
        (Bound("rate", ratio_least=5),),
    ),
    Scenario(
        "latency at 2,000/s, 32 at once",
        Load(rate=2000, prefetch=200),
        _LATENCY,
        _QUICK,
    ),
    Scenario(
        "latency at 2,000/s, one at a time",
        Load(rate=2000, prefetch=200, burst=1),
        _LATENCY,
        _QUICK,
    ),
    Scenario(
        "4 producers, 4 consumers, 4 queues, confirms 2000",
        _MANY,
        _FLOW,
        (Bound("cpu_us", most=3), _NINE_TENTHS),
    ),
    Scenario(
        "fan-in 10 to 1, confirms 2000, ack 200",
        Load(producers=10, confirm_window=2000, prefetch=200),
        _FLOW,
        (_NINE_TENTHS,),
    ),
    Scenario(
        "body 300 KiB, confirms 20, ack 20",
        Load(body_bytes=307_200, confirm_window=20, prefetch=20, burst=4),
        _FLOW,
        (Bound("rate", ratio_least=1),),
    ),
    Scenario(
        "persistent, confirms 200, ack 200",
        Load(persistent=True, confirm_window=200, prefetch=200),
        _FLOW,
        (Bound("cpu_us", most=5), Bound("rate", ratio_least=3)),
        needs="storage",
    ),
    Scenario(
        "persistent, confirms 2000, ack 200",
        Load(persistent=True, confirm_window=2000, prefetch=200),
        _FLOW,
        (Bound("cpu_us", most=2.5), _NINE_TENTHS),
        needs="storage",
    ),
    Scenario(
        "persistent, 1 KiB, confirms 200, ack 200",
        Load(persistent=True, confirm_window=200, prefetch=200, body_bytes=1024),
        _FLOW,
        (Bound("cpu_us", most=8),),
        needs="storage",
    ),
    Scenario(
        "persistent, 4 producers, 4 consumers, 4 queues",
        Load(
            persistent=True, producers=4, consumers=4, queues=4, confirm_window=2000, prefetch=200
        ),
        _FLOW,
        (Bound("cpu_us", most=3), _NINE_TENTHS),
        needs="storage",
    ),
    Scenario(
        "persistent, fan-in 10 to 1, confirms 2000, ack 200",
        Load(persistent=True, producers=10, confirm_window=2000, prefetch=200),
        _FLOW,
        (_NINE_TENTHS,),
        needs="storage",
    ),
    Scenario(
        "quorum queue on one node, confirms 200, ack 200",
        Load(persistent=True, queue_type="quorum", confirm_window=200, prefetch=200),
        _FLOW,
        (Bound("rate", ratio_least=3),),
        needs="storage",
    ),
    Scenario("start to accepting", None, ("start_s",), (Bound("start_s", most=0.5),)),
    Scenario("memory when idle", None, ("memory_mb",), (Bound("memory_mb", most=80),)),
)
