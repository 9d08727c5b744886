"""What a scrape reads: the broker and its connections, the log, the loop, the machine.

`Reading` is taken once for each scrape, in slices: sums over all queues, exchanges and channels,
those that are gone included, so that no counter ever goes down.
"""

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from leveret.engine.backlog.arrival_times import UNKNOWN
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.retired_counts import Counts
from leveret.engine.turns.session import Session
from leveret.histogram import Histogram
from leveret.http.framework.node import Connected, Machine, NodeView
from leveret.http.framework.pace import Slices
from leveret.http.framework.request_counts import Requests
from leveret.metrics import queue_lines as figures
from leveret.storage.log import Log

SLICE: Final = 1000  # queues, or other objects, that are looked at before others get their turn
HELD_MAX: Final = 1000  # messages of one channel that are looked at for the oldest of each queue

Item = TypeVar("Item")


@dataclass(slots=True, kw_only=True)
class Sources:
    """Where figures come from."""

    facts: NodeView
    alarms: Sequence[str]  # why publishers wait, as of now
    log: Callable[[], Log | None]
    lags: Histogram
    requests: Requests
    spans: Callable[[], tuple[int, int]]  # exported, dropped


@dataclass(slots=True)
class Reading:
    """Sums of one scrape."""

    sources: Sources
    machine: Machine
    now_ms: int
    sums: list[int] = field(default_factory=lambda: [0] * figures.FIGURES)
    counts: Counts = field(default_factory=Counts)
    queues: int = 0
    streams: int = 0
    stream_bytes: int = 0
    exchanges: int = 0
    bindings: int = 0
    channels: int = 0
    connections: int = 0
    publishers: int = 0
    consumers: int = 0
    unacked: int = 0
    unconfirmed: int = 0
    oldest_ready_ms: int = UNKNOWN
    oldest_unacked_ms: int = UNKNOWN


def sliced(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in slices."""
    rest = iter(items)
    while part := list(itertools.islice(rest, SLICE)):
        yield part


async def in_turn(items: Iterable[Item], slices: Slices) -> AsyncIterator[list[Item]]:
    """The same, with a turn for everybody else after each slice that took a while."""
    for part in sliced(items):
        yield part
        await slices.maybe_rest()


def queues_of(sources: Sources) -> list[Queue]:
    """All queues that have a name, as of now."""
    return [q for vhost in sources.facts.broker.vhosts.values() for q in vhost.queues.values()]


def sessions_of(sources: Sources) -> list[Session]:
    """All channels, as of now."""
    connections = sources.facts.connections
    found = [s for outlet in connections.outlets() for s in connections.sessions(outlet)]
    return [session for session in found if not session.closed]


async def read(sources: Sources, slices: Slices) -> Reading:
    """Add everything up."""
    reading = Reading(sources, sources.facts.machine(), sources.facts.now_ms())
    for vhost in list(sources.facts.broker.vhosts.values()):
        reading.counts.add(vhost.gone)
        async for exchanges in in_turn(list(vhost.exchanges.values()), slices):
            for exchange in exchanges:
                reading.counts.published += exchange.published_in
                reading.bindings += len(exchange.bindings)
            reading.exchanges += len(exchanges)
    async for queues in in_turn(queues_of(sources), slices):
        _add_queues(reading, queues)
    async for sessions in in_turn(sessions_of(sources), slices):
        for session in sessions:
            _add_session(reading, session)
    async for outlets in in_turn(sources.facts.connections.outlets(), slices):
        for outlet in outlets:
            _add_connection(reading, sources.facts.connections.connected(outlet))
    return reading


def _add_connection(reading: Reading, connected: Connected | None) -> None:
    """One that is open; what has ended is among what is gone."""
    if connected is not None and connected.state in ("running", "blocked"):
        reading.connections += 1
        reading.counts.received_bytes += connected.received_bytes
        reading.counts.sent_bytes += connected.sent_bytes


def _add_queues(reading: Reading, queues: list[Queue]) -> None:
    figures.add_figures(reading.sums, queues)
    reading.queues += len(queues)
    oldest = figures.oldest_ready_ms(queues)
    if oldest != UNKNOWN:
        reading.oldest_ready_ms = min(reading.oldest_ready_ms or oldest, oldest)
    for queue in queues:
        if isinstance(queue, Stream):
            reading.streams += 1
            reading.stream_bytes += queue.segments.total_bytes()


def _add_session(reading: Reading, session: Session) -> None:
    counts = reading.counts
    counts.confirmed += session.confirmed_seq
    counts.expected += session.publish_seq
    counts.returned += session.returned
    counts.unroutable += session.unroutable
    reading.channels += 1
    reading.publishers += 1 if session.published else 0
    reading.consumers += len(session.consumers)
    reading.unacked += session.unacked.count
    reading.unconfirmed += session.publish_seq - session.confirmed_seq
    held = oldest_held(session)
    if held is not None:
        reading.oldest_unacked_ms = min(reading.oldest_unacked_ms or held.taken_ms, held.taken_ms)


def oldest_held(session: Session) -> Message | None:
    """What a channel has held longest: deliveries are kept in order."""
    held = session.unacked.oldest(1)
    return held[0] if held else None


def oldest_by_queue(sessions: list[Session], oldest: dict[int, int]) -> None:
    """When the message of each queue that some channels hold longest was delivered.

    Of a channel that holds very many, the first `HELD_MAX` are looked at.
    """
    for session in sessions:
        for message in session.unacked.oldest(HELD_MAX):
            slot, taken_ms = int(message.queue), int(message.taken_ms)
            if slot >= 0 and taken_ms < oldest.get(slot, taken_ms + 1):
                oldest[slot] = taken_ms
