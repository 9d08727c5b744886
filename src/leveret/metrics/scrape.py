"""Makes a whole answer in slices, so that the event loop can serve clients between them.

    aggregated   sums over all objects; the default, its size does not depend on their number
    per_object   lines for each queue, channel, connection and exchange
    detailed     only the requested groups, filtered by vhost and queue

All samples of a family stand together, as the format requires. The scrape is made in slices
(`leveret.slices`): while clients are active, it takes less than a tenth of the event loop. Memory
is limited to one piece and the labels of queues.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from librt.strings import BytesWriter

from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.vhost import Vhost
from leveret.histogram import Histogram
from leveret.metrics import cluster, cursors, node, objects, queues, traffic
from leveret.metrics.cluster import CLUSTER_FAMILIES
from leveret.metrics.family import COUNTER, Family
from leveret.metrics.jobs import JOBS_FAMILIES
from leveret.metrics.node import NODE_FAMILIES
from leveret.metrics.node_family import PROTOCOL, NodeFamily
from leveret.metrics.objects import ObjectFamily, Thing
from leveret.metrics.queue_lines import (
    OLDEST_READY_MS,
    queue_labels,
    write_infos,
    write_lines,
)
from leveret.metrics.queues import QUEUE_FAMILIES, QueueFamily
from leveret.metrics.sources import (
    NodeTotals,
    Sources,
    all_queues,
    all_sessions,
    oldest_by_queue,
    read_totals,
    sliced,
    slices_in_turn,
)
from leveret.metrics.text import histogram_lines, sample
from leveret.slices import Slices

PIECE_BYTES: Final = 128 * 1024

AGGREGATED: Final = "aggregated"
PER_OBJECT: Final = "per-object"
DETAILED: Final = "detailed"

# Counters of deleted queues, by the number of the value that they continue.
_GONE: Final = {
    "rabbitmq_queue_messages_published_total": "queued",
    "rabbitmq_queue_get_ack_total": "got",
    "rabbitmq_queue_get_total": "got_no_ack",
    "rabbitmq_queue_messages_delivered_ack_total": "delivered",
    "rabbitmq_queue_messages_delivered_total": "delivered_no_ack",
    "rabbitmq_queue_messages_redelivered_total": "redelivered",
    "rabbitmq_queue_messages_acked_total": "acked",
    "rabbitmq_queue_get_empty_total": "got_empty",
}


@dataclass(frozen=True, slots=True)
class Filter:
    """The requested objects; an empty field means all."""

    vhosts: frozenset[str] = frozenset()
    queues: tuple[str, ...] = ()  # names, where * and ? match any characters

    def has_vhost(self, name: str) -> bool:
        return not self.vhosts or name in self.vhosts

    def has_queue(self, queue: Queue) -> bool:
        if not self.has_vhost(queue.vhost):
            return False
        return not self.queues or any(fnmatchcase(queue.name, like) for like in self.queues)


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """A slice of queues with their labels."""

    queues: list[Queue]
    labels: list[bytes]


class Scrape:
    """Makes one answer."""

    def __init__(self, sources: Sources, slices: Slices) -> None:
        self._sources = sources
        self._slices = slices
        self._out = BytesWriter()

    async def aggregated(self) -> AsyncIterator[bytes]:
        """Yield sums over all objects."""
        self._info_lines(AGGREGATED)
        totals = await read_totals(self._sources, self._slices)
        for family in (*NODE_FAMILIES, *JOBS_FAMILIES, *traffic.SUMS_OF_CHANNELS):
            self._node_family(family, totals)
        self._cluster_families()
        for queue_family in QUEUE_FAMILIES:
            self._queue_sum(queue_family, totals)
        yield self._take()

    async def per_object(self) -> AsyncIterator[bytes]:
        """Yield lines for each object."""
        self._info_lines(PER_OBJECT)
        totals = await read_totals(self._sources, self._slices)
        for family in (*NODE_FAMILIES, *JOBS_FAMILIES):
            self._node_family(family, totals)
        self._cluster_families()
        yield self._take()
        chosen = [family for family in QUEUE_FAMILIES if family.is_common]
        parts = await self._parts(Filter())
        async for piece in self._queue_families(chosen, parts, totals.now_ms):
            yield piece
        async for piece in self._queue_infos(parts, queues.INFO.name):
            yield piece
        async for piece in self._queue_extras(parts, totals.now_ms):
            yield piece
        async for piece in self._cursor_families(parts, totals.now_ms):
            yield piece
        async for piece in self._object_families(Filter(), None):
            yield piece
        yield self._take()

    async def detailed(self, groups: frozenset[str], filter: Filter) -> AsyncIterator[bytes]:
        """Yield the families of some groups, under RabbitMQ's names for this answer."""
        self._info_lines(DETAILED)
        all_families = (*NODE_FAMILIES, *JOBS_FAMILIES)
        node_families = [f for f in all_families if f.family.group in groups]
        if node_families:
            totals = await read_totals(self._sources, self._slices)
            for family in node_families:
                self._node_family(family, totals, family.family.detailed_name())
        if cluster.GROUP in groups:
            self._cluster_families(is_detailed=True)
        chosen = [f for f in QUEUE_FAMILIES if f.family.group in groups]
        if queues.CONSUMER_COUNT in groups and queues.METRICS not in groups:
            chosen.append(queues.CONSUMERS_ALONE)
        if chosen:
            parts = await self._parts(filter)
            now_ms = self._sources.facts.now_ms()
            async for piece in self._queue_families(chosen, parts, now_ms, is_detailed=True):
                yield piece
            async for piece in self._queue_infos(parts, queues.INFO.detailed_name()):
                yield piece
            if queues.OURS in groups:
                async for piece in self._queue_extras(parts, now_ms):
                    yield piece
        if cursors.GROUP in groups:
            parts = await self._parts(filter)
            now_ms = self._sources.facts.now_ms()
            async for piece in self._cursor_families(parts, now_ms):
                yield piece
        async for piece in self._object_families(filter, groups):
            yield piece
        yield self._take()

    def _take(self) -> bytes:
        piece = self._out.getvalue()
        self._out.truncate(0)
        return piece

    def _is_full(self) -> bool:
        return len(self._out) >= PIECE_BYTES

    def _write(self, text: str) -> None:
        self._out.write(text.encode())

    def _info_lines(self, endpoint: str) -> None:
        facts = self._sources.facts
        for family, labels in (
            (node.BUILD_INFO, node.build_labels(facts.product_version)),
            (node.IDENTITY_INFO, node.identity_labels(facts.node_name, endpoint)),
            (node.OUR_INFO, node.our_labels()),
        ):
            self._out.write(family.head())
            self._write(sample(family.name, labels, 1))

    def _node_family(self, declared: NodeFamily, totals: NodeTotals, name: str = "") -> None:
        family = declared.family
        name = name or family.name
        found = declared.read(totals)
        self._out.write(family.head(name))
        if isinstance(found, Histogram):
            labels = PROTOCOL if declared is traffic.MESSAGE_SIZES else {}
            self._write(histogram_lines(name, labels, found))
        elif isinstance(found, int | float):
            self._write(sample(name, {}, found))
        else:
            for labels, value in found:
                self._write(sample(name, labels, value))

    def _cluster_families(self, *, is_detailed: bool = False) -> None:
        """Write the families of a node in a cluster; a single node has none."""
        found = self._sources.facts.cluster
        facts = found.facts() if found is not None else {"raft": None}
        if facts["raft"] is not None:
            for family in CLUSTER_FAMILIES:
                name = family.family.detailed_name() if is_detailed else ""
                self._write(family.text(facts, name))

    def _queue_sum(self, declared: QueueFamily, totals: NodeTotals) -> None:
        """Write the sum over all queues, for RabbitMQ's names. Ours are families of the node."""
        family = declared.family
        if not family.name.startswith("rabbitmq_") or declared.value == OLDEST_READY_MS:
            return
        gone = getattr(totals.counts, _GONE[family.name]) if family.kind == COUNTER else 0
        self._out.write(family.head())
        self._write(sample(family.name, {}, totals.sums[declared.value] + gone))

    async def _parts(self, filter: Filter) -> list[QueueSlice]:
        """Return the queues in slices, with their labels."""
        parts = []
        async for found in slices_in_turn(all_queues(self._sources), self._slices):
            kept = [queue for queue in found if filter.has_queue(queue)]
            parts.append(QueueSlice(kept, queue_labels(kept)))
        return parts

    async def _queue_families(
        self,
        families: Sequence[QueueFamily],
        parts: list[QueueSlice],
        now_ms: int,
        *,
        is_detailed: bool = False,
    ) -> AsyncIterator[bytes]:
        for declared in families:
            family = declared.family
            name = family.detailed_name() if is_detailed else family.name
            self._out.write(family.head(name))
            for part in parts:
                write_lines(
                    self._out,
                    name.encode(),
                    declared.value,
                    declared.is_sparse,
                    part.queues,
                    part.labels,
                    now_ms,
                )
                await self._slices.rest_if_over()
                if self._is_full():
                    yield self._take()
                    self._slices.begin()

    async def _queue_infos(self, parts: list[QueueSlice], name: str) -> AsyncIterator[bytes]:
        self._out.write(queues.INFO.head(name))
        for part in parts:
            write_infos(self._out, name.encode(), part.queues, part.labels)
            await self._slices.rest_if_over()
            if self._is_full():
                yield self._take()
                self._slices.begin()

    async def _queue_extras(self, parts: list[QueueSlice], now_ms: int) -> AsyncIterator[bytes]:
        """Yield families that few queues have, with further labels or from their channels."""
        oldest: dict[int, int] = {}
        async for sessions in slices_in_turn(all_sessions(self._sources), self._slices):
            oldest_by_queue(sessions, oldest)
        self._out.write(queues.OLDEST_UNACKED.head())
        for part in parts:
            for queue, labels in zip(part.queues, part.labels, strict=True):
                taken_ms = oldest.get(int(queue.slot)) if queue.unacked else None
                if taken_ms is not None:
                    age_s = max(0, now_ms - taken_ms) / 1000
                    self._write(f"{queues.OLDEST_UNACKED.name}{labels.decode()}{age_s:.9g}\n")
            await self._slices.rest_if_over()
            if self._is_full():
                yield self._take()
                self._slices.begin()
        for family in (queues.DROPPED, queues.DEAD_LETTERED):
            self._out.write(family.head())
            for part in parts:
                self._write_losses(family, part)
                await self._slices.rest_if_over()
                if self._is_full():
                    yield self._take()
                    self._slices.begin()

    async def _cursor_families(self, parts: list[QueueSlice], now_ms: int) -> AsyncIterator[bytes]:
        """Yield how far each cursor of a stream is behind."""
        for family in cursors.CURSOR_FAMILIES:
            self._out.write(family.head())
            for part in parts:
                for lag in self._sources.cursor_times.lags(part.queues, now_ms):
                    is_count = family is cursors.LAG_MESSAGES
                    value = lag.messages if is_count else lag.seconds
                    self._write(sample(family.name, lag.labels(), value))
                await self._slices.rest_if_over()
                if self._is_full():
                    yield self._take()
                    self._slices.begin()

    def _write_losses(self, family: Family, part: QueueSlice) -> None:
        """Write the dropped or dead-lettered messages of each queue, by reason."""
        for queue in part.queues:
            losses = queue.losses
            if losses is None:
                continue
            counts = losses.dropped if family is queues.DROPPED else losses.dead_lettered
            for reason, count in counts.items():
                labels = {"vhost": queue.vhost, "queue": queue.name, "reason": reason}
                self._write(sample(family.name, labels, count))

    async def _object_families(
        self, filter: Filter, groups: frozenset[str] | None
    ) -> AsyncIterator[bytes]:
        """Yield channels, connections, exchanges and vhosts; all common families without groups."""
        sources = self._sources
        vhosts = [v for v in sources.facts.broker.vhosts.values() if filter.has_vhost(v.name)]
        sessions = all_sessions(sources) if _wants(objects.CHANNELS, groups) else []
        labelled = [(objects.channel_labels(s), s) for s in sessions]
        async for piece in self._objects(objects.CHANNELS, labelled, groups):
            yield piece
        connected = []
        if _wants(objects.CONNECTIONS, groups):
            outlets = sources.facts.connections.outlets()
            found = [sources.facts.connections.snapshot(outlet) for outlet in outlets]
            connected = [(objects.connection_labels(c), c) for c in found if c is not None]
        async for piece in self._objects(objects.CONNECTIONS, connected, groups):
            yield piece
        async for piece in self._exchanges(vhosts, groups):
            yield piece

    async def _exchanges(
        self, vhosts: list[Vhost], groups: frozenset[str] | None
    ) -> AsyncIterator[bytes]:
        """Yield exchanges and vhosts. Cluster-wide families are given only if asked for."""
        for_cluster = (objects.BINDINGS, objects.EXCHANGE_NAMES) if groups is not None else ()
        families = (*objects.EXCHANGES, *for_cluster)
        if _wants(families, groups):
            exchanges = [
                (objects.exchange_labels(vhost.name, exchange), exchange)
                for vhost in vhosts
                for exchange in vhost.exchanges.values()
            ]
            async for piece in self._objects(families, exchanges, groups):
                yield piece
        if groups is not None and _wants((objects.VHOSTS,), groups):
            named = [(objects.vhost_labels(vhost), vhost) for vhost in vhosts]
            async for piece in self._objects((objects.VHOSTS,), named, groups):
                yield piece

    async def _objects(
        self,
        families: Sequence[ObjectFamily[Thing]],
        things: list[tuple[str, Thing]],
        groups: frozenset[str] | None,
    ) -> AsyncIterator[bytes]:
        for declared in families:
            family = declared.family
            if groups is not None and family.group not in groups:
                continue
            name = family.detailed_name() if groups is not None else family.name
            if family.name.startswith(objects.CLUSTER):
                name = family.name
            self._out.write(family.head(name))
            for part in sliced(things):
                self._out.write(objects.lines(declared, name, part))
                await self._slices.rest_if_over()
                if self._is_full():
                    yield self._take()
                    self._slices.begin()


def _wants(families: Iterable[ObjectFamily[Thing]], groups: frozenset[str] | None) -> bool:
    return groups is None or any(declared.family.group in groups for declared in families)
