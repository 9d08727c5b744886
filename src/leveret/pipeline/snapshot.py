"""A consistent snapshot of a vhost: its streams of life events, and the messages of its queues.

A *chronicle* is a stream of life events. A queue or exchange *remembers* if it writes life events
(docs/remember.md). The broker takes the snapshot in one turn (`GET /api/chronicles/{vhost}`), so
the ends of the chronicles match the messages of the queues even under load. Does not import Spark.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from leveret.errors import NotFoundError
from leveret.pipeline.environment import Environment
from pyspark_leveret.client import Broker
from pyspark_leveret.options import parse_options

STATES: Final = ("ready", "scheduled", "unacked", "stuck", "damaged")

Run = tuple[int, str, int, int, int | None]  # queue id, state, first and last number, since (ms)


@dataclass(frozen=True)
class Chronicle:
    """A stream of life events, from offset `first` up to `end` (not included)."""

    name: str
    id: int
    first: int
    end: int


@dataclass(frozen=True)
class QueueSnapshot:
    """A queue that remembers, and the numbers of its messages."""

    name: str
    id: int
    stream: str
    is_declared: bool = True  # with x-remember: it remembers since its first message
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The broker's answer."""

    time_ms: int
    chronicles: tuple[Chronicle, ...]
    queues: tuple[QueueSnapshot, ...]
    exchanges: dict[str, str] = field(default_factory=dict)  # that remember: name -> stream

    def runs(self) -> Iterator[Run]:
        for queue in self.queues:
            yield from queue.runs

    def copies(self) -> int:
        """Return the number of messages in the queues."""
        return sum(last - first + 1 for _, _, first, last, _ in self.runs())


def take_snapshot(environment: Environment, queues: tuple[str, ...] = ()) -> Snapshot:
    """Take a snapshot of some queues, or of all; raise NotFoundError if nothing remembers."""
    broker = Broker(parse_options(environment.options()))
    query = "&".join(f"queue={quote(name, safe='')}" for name in queues)
    path = f"/api/chronicles/{quote(environment.vhost, safe='')}"
    found = broker.ask("GET", f"{path}?{query}" if query else path)
    snapshot = parse_snapshot(found, is_chosen=bool(queues))
    if not snapshot.chronicles:
        text = f"nothing remembers in vhost '{environment.vhost}': declare queues with x-remember"
        raise NotFoundError(f"{text} (docs/remember.md)")
    return snapshot


def parse_snapshot(found: dict[str, Any], *, is_chosen: bool) -> Snapshot:
    """Parse the broker's answer. `is_chosen`: keep only the chronicles of its queues."""
    queues = tuple(_queue(one) for one in found["queues"])
    wanted = {queue.stream for queue in queues}
    chronicles = tuple(
        Chronicle(one["name"], one["id"], one["first_offset"], one["end_offset"])
        for one in found["streams"]
        if not is_chosen or one["name"] in wanted
    )
    exchanges = {one["name"]: one["stream"] for one in found["exchanges"]}
    return Snapshot(found["time_ms"], chronicles, queues, exchanges)


def _queue(one: dict[str, Any]) -> QueueSnapshot:
    runs: list[Run] = []
    for state in STATES:
        for first, last, *since in one[state]:
            runs.append((one["id"], state, first, last, since[0] if since else None))
    return QueueSnapshot(
        name=one["name"],
        id=one["id"],
        stream=one["stream"],
        is_declared=one["declared"],
        dead_letter_exchange=one["dead_letter_exchange"],
        dead_letter_key=one["dead_letter_routing_key"],
        runs=tuple(runs),
    )
