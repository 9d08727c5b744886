"""What a bus counts, and its text in the format of Prometheus.

There are few metrics, and their labels have few values: an event without a handler is `other`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from leveret.bus.handler_result import Action

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OTHER: Final = "other"  # the label of an event without a handler of its own
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
_OUTCOMES: Final = {
    Action.ACK: "acked",
    Action.REJECT: "retried",
    Action.DELAY: "retried",
    Action.DEAD_LETTER: "dead_lettered",
}
_EARLY: Final = "early"  # it waits, and this is no retry
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]  # end of the name, labels, value


class HandlerTimes:
    """How long the handlers of an event took."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._counts = [0] * len(BUCKETS_S)  # by the smallest bucket that fits

    def add(self, took_s: float) -> None:
        """Count one call."""
        self.count += 1
        self.sum_s += took_s
        for index, bound_s in enumerate(BUCKETS_S):
            if took_s <= bound_s:
                self._counts[index] += 1
                return

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Return each bound with the number of calls that took at most so long."""
        total = 0
        for bound_s, count in zip(BUCKETS_S, self._counts, strict=True):
            total += count
            yield f"{bound_s:g}", total
        yield "+Inf", self.count


class BusMetrics:
    """The counts of one bus since it was made."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.confirmed = 0
        self.unconfirmed = 0
        self._handled: Counter[tuple[str, str]] = Counter()  # by event and outcome
        self._times: dict[str, HandlerTimes] = {}  # by event

    def on_handled(self, event: str, action: Action, took_s: float) -> None:
        """Count a delivery that its handler answered."""
        self._handled[event, _OUTCOMES.get(action, _EARLY)] += 1
        self._times.setdefault(event, HandlerTimes()).add(took_s)

    def text(self, *, running: int, sessions: Mapping[str, tuple[bool, int]]) -> str:
        """Return all metrics.

        `running` handlers are called now. `sessions` has for each connection whether it is open,
        and how often it was opened.
        """
        lines: list[str] = []
        published = (
            ("", {"outcome": "confirmed"}, self.confirmed),
            ("", {"outcome": "failed"}, self.unconfirmed),
        )
        lines += self._lines(
            "published_total",
            "counter",
            "Messages published, copies for retries and dead letters among them.",
            published,
        )
        handled = (
            ("", {"event": event, "outcome": outcome}, count)
            for (event, outcome), count in sorted(self._handled.items())
        )
        lines += self._lines("handled_total", "counter", "Deliveries, by their outcome.", handled)
        times = "Time from the call of a handler to its answer."
        lines += self._lines("handler_seconds", "histogram", times, self._time_samples())
        now: list[Sample] = [("", {}, running)]
        lines += self._lines("handlers_running", "gauge", "Handlers that run now.", now)
        opened = [("", {"connection": name}, is_open) for name, (is_open, _) in sessions.items()]
        lines += self._lines("connected", "gauge", "1 while the broker is connected.", opened)
        counts = [("", {"connection": name}, count) for name, (_, count) in sessions.items()]
        lines += self._lines("sessions_total", "counter", "Connections opened so far.", counts)
        return "\n".join(lines) + "\n"

    def _time_samples(self) -> Iterator[Sample]:
        for event, times in sorted(self._times.items()):
            for bound, count in times.buckets():
                yield "_bucket", {"event": event, "le": bound}, count
            yield "_sum", {"event": event}, times.sum_s
            yield "_count", {"event": event}, times.count

    def _lines(self, name: str, kind: str, help_: str, samples: Iterable[Sample]) -> Iterator[str]:
        full = f"leveret_bus_{name}"
        yield f"# HELP {full} {help_}"
        yield f"# TYPE {full} {kind}"
        for end, labels, value in samples:
            known = {"service": self._service, **labels}
            words = ",".join(
                f'{label}="{text.translate(_ESCAPES)}"' for label, text in known.items()
            )
            yield f"{full}{end}{{{words}}} {float(value):g}"
