"""Reads the values of a scrape: the broker and its connections, the log, the loop, the machine.

`NodeTotals` is read once for each scrape, in slices. It sums over all queues, exchanges and
channels, including deleted ones, so that no counter ever goes down.
"""

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from leveret.engine.backlog.arrival_times import UNKNOWN
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.retired_counts import TrafficCounts
from leveret.engine.turns.session import Session
from leveret.histogram import Histogram
from leveret.http.framework.node import ConnectionSnapshot, Machine, NodeView
from leveret.http.framework.request_counts import RequestCounts
from leveret.job_service.report import StoreReport
from leveret.metrics import queue_lines
from leveret.metrics.cursors import CursorTimes
from leveret.slices import Slices
from leveret.storage.log import Log

SLICE: Final = 1000  # objects to read before other work gets its turn
HELD_MAX: Final = 1000  # messages of one channel to examine for the oldest of each queue

Item = TypeVar("Item")


@dataclass(slots=True, kw_only=True)
class Sources:
    """The objects that a scrape reads from."""

    facts: NodeView
    alarms: Sequence[str]  # why publishers are blocked now
    log: Callable[[], Log | None]
    lags: Histogram
    requests: RequestCounts
    spans: Callable[[], tuple[int, int]]  # exported and dropped spans
    dropped_lines: Callable[[], int]  # lines of the node's log that could not be written
    cursor_times: CursorTimes = field(default_factory=CursorTimes)


@dataclass(slots=True)
class NodeTotals:
    """Sums of one scrape."""

    sources: Sources
    machine: Machine
    now_ms: int
    sums: list[int] = field(default_factory=lambda: [0] * queue_lines.SUMMED_VALUES)
    counts: TrafficCounts = field(default_factory=TrafficCounts)
    queues: int = 0
    streams: int = 0
    stream_bytes: int = 0
    cursors: int = 0
    cursor_lag_messages: int = 0  # of the cursor that is furthest behind
    cursor_lag_s: float = 0.0
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
    jobs: StoreReport = field(default_factory=StoreReport)


def sliced(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the items in slices."""
    rest = iter(items)
    while part := list(itertools.islice(rest, SLICE)):
        yield part


async def slices_in_turn(items: Iterable[Item], slices: Slices) -> AsyncIterator[list[Item]]:
    """Yield the items in slices, and let other work run after each slice that took a while."""
    for part in sliced(items):
        yield part
        await slices.rest_if_over()


def all_queues(sources: Sources) -> list[Queue]:
    """Return all named queues."""
    return [q for vhost in sources.facts.broker.vhosts.values() for q in vhost.queues.values()]


def all_sessions(sources: Sources) -> list[Session]:
    """Return all channels."""
    connections = sources.facts.connections
    found = [s for outlet in connections.outlets() for s in connections.sessions(outlet)]
    return [session for session in found if not session.closed]


async def read_totals(sources: Sources, slices: Slices) -> NodeTotals:
    """Sum over the whole node."""
    totals = NodeTotals(sources, sources.facts.machine(), sources.facts.now_ms())
    totals.jobs = await sources.facts.jobs.full_report()
    for vhost in list(sources.facts.broker.vhosts.values()):
        totals.counts.add(vhost.retired_counts)
        async for exchanges in slices_in_turn(list(vhost.exchanges.values()), slices):
            for exchange in exchanges:
                totals.counts.published += exchange.published_in
                totals.bindings += len(exchange.bindings)
            totals.exchanges += len(exchanges)
    seen: set[tuple[str, str, str]] = set()
    async for queues in slices_in_turn(all_queues(sources), slices):
        _add_queues(totals, queues)
        seen.update(_add_cursors(totals, queues))
    sources.cursor_times.keep_only(seen)
    async for sessions in slices_in_turn(all_sessions(sources), slices):
        for session in sessions:
            _add_session(totals, session)
    async for outlets in slices_in_turn(sources.facts.connections.outlets(), slices):
        for outlet in outlets:
            _add_connection(totals, sources.facts.connections.snapshot(outlet))
    return totals


def _add_connection(totals: NodeTotals, connected: ConnectionSnapshot | None) -> None:
    """Add an open connection. Closed ones are among the retired counts."""
    if connected is not None and connected.state in ("running", "blocked"):
        totals.connections += 1
        totals.counts.received_bytes += connected.received_bytes
        totals.counts.sent_bytes += connected.sent_bytes


def _add_queues(totals: NodeTotals, queues: list[Queue]) -> None:
    queue_lines.add_values(totals.sums, queues)
    totals.queues += len(queues)
    oldest = queue_lines.oldest_ready_ms(queues)
    if oldest != UNKNOWN:
        totals.oldest_ready_ms = min(totals.oldest_ready_ms or oldest, oldest)
    for queue in queues:
        if isinstance(queue, Stream):
            totals.streams += 1
            totals.stream_bytes += queue.segments.total_bytes()


def _add_cursors(totals: NodeTotals, queues: list[Queue]) -> Iterator[tuple[str, str, str]]:
    for lag in totals.sources.cursor_times.lags(queues, totals.now_ms):
        totals.cursors += 1
        totals.cursor_lag_messages = max(totals.cursor_lag_messages, lag.messages)
        totals.cursor_lag_s = max(totals.cursor_lag_s, lag.seconds)
        yield (lag.vhost, lag.stream, lag.cursor)


def _add_session(totals: NodeTotals, session: Session) -> None:
    counts = totals.counts
    counts.confirmed += session.confirmed_seq
    counts.expected += session.publish_seq
    counts.returned += session.returned
    counts.unroutable += session.unroutable
    totals.channels += 1
    totals.publishers += 1 if session.published else 0
    totals.consumers += len(session.consumers)
    totals.unacked += session.unacked.count
    totals.unconfirmed += session.publish_seq - session.confirmed_seq
    held = oldest_held(session)
    if held is not None:
        totals.oldest_unacked_ms = min(totals.oldest_unacked_ms or held.taken_ms, held.taken_ms)


def oldest_held(session: Session) -> Message | None:
    """Return the message that a channel has held longest: deliveries are in order."""
    held = session.unacked.oldest(1)
    return held[0] if held else None


def oldest_by_queue(sessions: list[Session], oldest: dict[int, int]) -> None:
    """Note for each queue when its longest held message was delivered to one of these channels.

    Only the first `HELD_MAX` messages of a channel are examined.
    """
    for session in sessions:
        for message in session.unacked.oldest(HELD_MAX):
            slot, taken_ms = int(message.queue), int(message.taken_ms)
            if slot >= 0 and taken_ms < oldest.get(slot, taken_ms + 1):
                oldest[slot] = taken_ms
