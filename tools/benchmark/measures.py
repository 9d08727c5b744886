"""The measures of the benchmark, and bounds on them: numbers, or ratios to RabbitMQ."""

from dataclasses import dataclass
from typing import Final

# Measured values by the names in MEASURES.
Figures = dict[str, float]

FAST_SYNC_US: Final = 1000.0


@dataclass(frozen=True)
class Measure:
    """Title and format of a measured value."""

    title: str
    form: str
    unit: str = ""
    is_higher_better: bool = False

    def show(self, value: float) -> str:
        return self.form.format(value)


MEASURES: Final = {
    "rate": Measure("received/s", "{:,.0f}", "/s", True),
    "share": Measure("of sent", "{:.0%}", "", True),
    "cpu_us": Measure("CPU µs", "{:,.2f}", " µs"),
    "p50_us": Measure("p50 µs", "{:,.0f}", " µs"),
    "p95_us": Measure("p95 µs", "{:,.0f}", " µs"),
    "p99_us": Measure("p99 µs", "{:,.0f}", " µs"),
    "fair": Measure("least share", "{:.0%}", "", True),
    "start_s": Measure("start s", "{:.2f}", " s"),
    "memory_mb": Measure("MB", "{:,.0f}", " MB"),
    "kept": Measure("kept", "{:.0%}", "", True),
    "scrape_s": Measure("scrape s", "{:.2f}", " s"),
    "list_s": Measure("list s", "{:.2f}", " s"),
    "sync_us": Measure("sync p50 µs", "{:,.0f}", " µs"),
}


@dataclass(frozen=True)
class Bound:
    """A limit on one measure. If it has a number and a ratio, meeting one of them is enough."""

    measure: str
    most: float | None = None
    least: float | None = None
    ratio_most: float | None = None  # Leveret's value divided by RabbitMQ's
    ratio_least: float | None = None
    ratio_least_fast_sync: float | None = None  # instead of ratio_least, if a sync takes under 1 ms

    def is_met(self, ours: Figures, theirs: Figures | None) -> bool | None:
        """Return True if the bound is met; None if that needs RabbitMQ and it was not measured."""
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
        return value >= other * self._ratio_wanted(ours)

    def _ratio_wanted(self, ours: Figures) -> float:
        assert self.ratio_least is not None
        if self.ratio_least_fast_sync is not None and ours["sync_us"] < FAST_SYNC_US:
            return self.ratio_least_fast_sync
        return self.ratio_least

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
        ratio = self.ratio_least_fast_sync
        shown = f"{measure.title} {' or '.join(wanted)}"
        return f"{shown} ({ratio:g}× if a sync takes < 1 ms)" if ratio is not None else shown
