"""What is measured, and what must hold of it: numbers, ratios to RabbitMQ, or either of the two."""

from dataclasses import dataclass
from typing import Final

# Median of what was measured in the rounds, by the names of MEASURES.
Figures = dict[str, float]

QUICK_SYNC_US: Final = 1000.0


@dataclass(frozen=True)
class Measure:
    """What a figure means and how it is shown."""

    title: str
    form: str
    unit: str = ""
    is_more_better: bool = False

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
    """One thing that must hold. With a number and a ratio, one of them is enough."""

    measure: str
    most: float | None = None
    least: float | None = None
    ratio_most: float | None = None  # of Leveret's figure to RabbitMQ's
    ratio_least: float | None = None
    ratio_least_quick: float | None = None  # instead, where a sync takes under 1 ms

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
        return value >= other * self._ratio_wanted(ours)

    def _ratio_wanted(self, ours: Figures) -> float:
        assert self.ratio_least is not None
        if self.ratio_least_quick is not None and ours["sync_us"] < QUICK_SYNC_US:
            return self.ratio_least_quick
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
        quick = self.ratio_least_quick
        shown = f"{measure.title} {' or '.join(wanted)}"
        return f"{shown} ({quick:g}× where a sync takes < 1 ms)" if quick is not None else shown
