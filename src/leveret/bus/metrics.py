"""The metrics of a bus, and their text in the format of Prometheus.

The values of labels are few: all events without a handler share the label `other`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from leveret.bus.handler_result import Action
from leveret.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OTHER: Final = "other"  # the label of an event without a handler of its own
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
_OUTCOMES: Final = {
    Action.ACK: "acked",
    Action.REJECT: "retried",
    Action.DELAY: "retried",
    Action.DEAD_LETTER: "dead_lettered",
}
_EARLY: Final = "early"  # the message came too early and is delivered again; this is not a retry
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]  # end of the name, labels, value


class BusMetrics:
    """The counts of one bus since it was made."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.confirmed = 0
        self.failed = 0
        self._handled: Counter[tuple[str, str]] = Counter()  # by event and outcome
        self._times: dict[str, Histogram] = {}  # seconds of handlers, by event

    def on_handled(self, event: str, action: Action, took_s: float) -> None:
        """Count a delivery whose handler has returned."""
        self._handled[event, _OUTCOMES.get(action, _EARLY)] += 1
        self._times.setdefault(event, Histogram(BUCKETS_S)).observe(took_s)

    def text(self, *, running: int, sessions: Mapping[str, tuple[bool, int]]) -> str:
        """Return all metrics.

        `running` is the number of handlers that run now. `sessions` says of each connection whether
        it is open, and how often it was opened.
        """
        lines: list[str] = []
        published = (
            ("", {"outcome": "confirmed"}, self.confirmed),
            ("", {"outcome": "failed"}, self.failed),
        )
        lines += self._family_lines(
            "published_total",
            "counter",
            "Messages published, copies for retries and dead letters among them.",
            published,
        )
        handled = (
            ("", {"event": event, "outcome": outcome}, count)
            for (event, outcome), count in sorted(self._handled.items())
        )
        lines += self._family_lines(
            "handled_total", "counter", "Deliveries, by their outcome.", handled
        )
        times = "Time from the call of a handler to its answer."
        lines += self._family_lines("handler_seconds", "histogram", times, self._time_samples())
        now: list[Sample] = [("", {}, running)]
        lines += self._family_lines("handlers_running", "gauge", "Handlers that run now.", now)
        opened = [("", {"connection": name}, is_open) for name, (is_open, _) in sessions.items()]
        lines += self._family_lines(
            "connected", "gauge", "1 while the broker is connected.", opened
        )
        counts = [("", {"connection": name}, count) for name, (_, count) in sessions.items()]
        lines += self._family_lines(
            "sessions_total", "counter", "Connections opened so far.", counts
        )
        return "\n".join(lines) + "\n"

    def _time_samples(self) -> Iterator[Sample]:
        for event, times in sorted(self._times.items()):
            bounds = (*(f"{bound:g}" for bound in times.bounds), "+Inf")
            for bound, count in zip(bounds, accumulate(times.counts), strict=True):
                yield "_bucket", {"event": event, "le": bound}, count
            yield "_sum", {"event": event}, times.sum
            yield "_count", {"event": event}, times.count

    def _family_lines(
        self, name: str, kind: str, help_: str, samples: Iterable[Sample]
    ) -> Iterator[str]:
        full = f"leveret_bus_{name}"
        yield f"# HELP {full} {help_}"
        yield f"# TYPE {full} {kind}"
        for end, labels, value in samples:
            known = {"service": self._service, **labels}
            words = ",".join(
                f'{label}="{text.translate(_ESCAPES)}"' for label, text in known.items()
            )
            yield f"{full}{end}{{{words}}} {float(value):g}"
