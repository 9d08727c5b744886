"""Formats names, labels and numbers for Prometheus's text format."""

from leveret.histogram import Histogram
from leveret.metrics.queue_lines import escaped

Labels = dict[str, str]
Number = int | float


def label_text(labels: Labels) -> str:
    """Return all labels in braces; an empty string if there are none."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"


def number_text(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value.is_integer() else f"{value:.9g}"


def sample(name: str, labels: Labels, value: Number) -> str:
    """Return one line."""
    return f"{name}{label_text(labels)} {number_text(value)}\n"


def histogram_lines(name: str, labels: Labels, found: Histogram) -> str:
    """Return the lines of a histogram: cumulative counts, sum and count."""
    lines = []
    total = 0
    for bound, count in zip((*found.bounds, float("inf")), found.counts, strict=True):
        total += count
        shown = "+Inf" if bound == float("inf") else number_text(bound)
        lines.append(sample(f"{name}_bucket", {**labels, "le": shown}, total))
    lines.append(sample(f"{name}_sum", labels, found.sum))
    lines.append(sample(f"{name}_count", labels, total))
    return "".join(lines)
