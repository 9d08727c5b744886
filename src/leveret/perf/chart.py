"""Pages of line charts for `leveret perf` and the benchmark, drawn by `leveret.charts`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from leveret.charts.axes import XAxis
from leveret.charts.charts import Lines, Page, Part, Series
from leveret.charts.page import page_html

__all__ = ["Chart", "Series", "page"]


@dataclass(frozen=True)
class Chart:
    """Several lines on the same axes."""

    title: str
    unit: str
    series: list[Series]
    x_title: str = "seconds"
    x_labels: dict[float, str] = field(default_factory=dict)  # text shown instead of the number
    is_log: bool = False


def page(
    title: str, facts: Sequence[tuple[str, str]], charts: Sequence[Chart], about: str = ""
) -> str:
    """Return the whole page as HTML, with `about` under the title."""
    parts: list[Part] = [
        Lines(
            f"{chart.title} ({chart.unit})",
            chart.series,
            x_axis=XAxis(chart.x_title, labels=chart.x_labels),
            is_log=chart.is_log,
        )
        for chart in charts
    ]
    return page_html(Page(title, about, list(facts), parts))
