"""One moment of a broker: what remembers in a vhost, and where each copy of a message was then.

The broker takes it in one turn (`GET /api/chronicles/{vhost}`): the ends of the chronicles and the
messages of the queues belong together, however much is going on. Imports nothing of Spark.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from leveret.errors import NotFoundError
from leveret.pipeline.site import Site
from pyspark_leveret.client import Broker
from pyspark_leveret.options import parse

STATES: Final = ("ready", "scheduled", "unacked", "stuck", "damaged")

Run = tuple[int, str, int, int, int | None]  # queue, state, first and last number, since (ms)


@dataclass(frozen=True)
class Chronicle:
    """A stream of life events: from `first` up to `end`, which is not included."""

    name: str
    id: int
    first: int
    end: int


@dataclass(frozen=True)
class Queue:
    """A queue that remembers, and its copies."""

    name: str
    id: int
    stream: str
    is_declared: bool = True  # with x-remember: it remembers from its first message on
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Moment:
    """What the broker said."""

    time_ms: int
    chronicles: tuple[Chronicle, ...]
    queues: tuple[Queue, ...]
    exchanges: dict[str, str] = field(default_factory=dict)  # that remember, and their streams

    def runs(self) -> Iterator[Run]:
        for queue in self.queues:
            yield from queue.runs

    def copies(self) -> int:
        """Messages that were in the queues."""
        return sum(last - first + 1 for _, _, first, last, _ in self.runs())


def take_moment(site: Site, queues: tuple[str, ...] = ()) -> Moment:
    """The moment that is now; NotFoundError where nothing remembers. Without names: all queues."""
    broker = Broker(parse(site.options()))
    query = "&".join(f"queue={quote(name, safe='')}" for name in queues)
    path = f"/api/chronicles/{quote(site.vhost, safe='')}"
    found = broker.ask("GET", f"{path}?{query}" if query else path)
    moment = moment_of(found, is_chosen=bool(queues))
    if not moment.chronicles:
        text = f"nothing remembers in vhost '{site.vhost}': declare queues with x-remember"
        raise NotFoundError(f"{text} (docs/remember.md)")
    return moment


def moment_of(found: dict[str, Any], *, is_chosen: bool) -> Moment:
    """A moment of the broker's answer; with chosen queues only the chronicles of these."""
    queues = tuple(_queue(one) for one in found["queues"])
    wanted = {queue.stream for queue in queues}
    chronicles = tuple(
        Chronicle(one["name"], one["id"], one["first_offset"], one["end_offset"])
        for one in found["streams"]
        if not is_chosen or one["name"] in wanted
    )
    exchanges = {one["name"]: one["stream"] for one in found["exchanges"]}
    return Moment(found["time_ms"], chronicles, queues, exchanges)


def _queue(one: dict[str, Any]) -> Queue:
    runs: list[Run] = []
    for state in STATES:
        for first, last, *since in one[state]:
            runs.append((one["id"], state, first, last, since[0] if since else None))
    return Queue(
        name=one["name"],
        id=one["id"],
        stream=one["stream"],
        is_declared=one["declared"],
        dead_letter_exchange=one["dead_letter_exchange"],
        dead_letter_key=one["dead_letter_routing_key"],
        runs=tuple(runs),
    )
