"""The last hour of the node and of its busiest queues, so that a chart opens with a past.

    GET /api/history                         rates, depths, memory, disk, open files of the node
    GET /api/queues/{vhost}/{name}/history   rates and depths of a queue

A task takes samples beside the work of the clients: the node every `NODE_MS`, queues every
`QUEUES_MS` and in slices. Objects only count; nothing is added to the path of a message.

Memory: a row has eight bytes for its time and for each value. While nothing changes, only the time
of the last row does. `KEPT_MS` and `QUEUES_MAX` keep all rows below 10 MB. Beyond `QUEUES_MAX`, a
busy queue takes the place of a queue that has not changed for `CALM_MS`.
"""

import asyncio
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.engine.queues.queue import Queue
from leveret.engine.turns.retired_counts import TrafficCounts
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.permissions import queue_of
from leveret.http.framework.request_parts import node_of
from leveret.http.framework.responses import json_response
from leveret.http.management.overview import totals_of
from leveret.http.management.stats import total_counts
from leveret.slices import LoopShare, Slices

NODE_MS: Final = 10_000
QUEUES_MS: Final = 30_000
KEPT_MS: Final = 3_600_000
QUEUES_MAX: Final = 1_000
ADMITTED_MAX: Final = 100  # queues that begin a history in one sample
CALM_MS: Final = 600_000
_AT_A_TIME: Final = 64  # queues between two looks at the clock

# Counters, in the order of `total_counts`; then gauges.
NODE_COUNTERS: Final = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "deliver_get",
)
NODE_GAUGES: Final = ("ready", "unacked", "memory", "memory_held", "disk_free", "files", "sockets")
QUEUE_COUNTERS: Final = ("publish", "deliver_get", "get", "ack", "redeliver")
QUEUE_GAUGES: Final = ("ready", "unacked")


class HistoryInfo(msgspec.Struct):
    """Samples of an object, oldest first. A row is a time in ms and a value for each name."""

    now_ms: int
    interval_ms: int
    counters: Sequence[str]  # values that grow: the difference of two rows is a rate
    gauges: Sequence[str]
    rows: list[list[int]]


class Series:
    """The samples of one object."""

    __slots__ = ("_rows", "_width", "changed_ms")

    def __init__(self, values: int) -> None:
        self._width = values + 1
        self._rows = array("q")
        self.changed_ms = 0

    def add(self, now_ms: int, values: Sequence[int]) -> bool:
        """Add a sample. Return True if it differs from the one before."""
        rows, width = self._rows, self._width
        row = array("q", (now_ms, *values))
        is_same = len(rows) > 0 and rows[1 - width :] == row[1:]
        if is_same and len(rows) > width and rows[1 - 2 * width : -width] == row[1:]:
            rows[-width] = now_ms
        else:
            rows.extend(row)
        while len(rows) > 2 * width and rows[width] <= now_ms - KEPT_MS:
            del rows[:width]
        if not is_same:
            self.changed_ms = now_ms
        return not is_same

    def last_ms(self) -> int:
        return self._rows[-self._width]

    def rows(self) -> list[list[int]]:
        width = self._width
        return [self._rows[at : at + width].tolist() for at in range(0, len(self._rows), width)]


class History:
    """The samples of a node."""

    def __init__(self, node: NodeView, share: LoopShare) -> None:
        self._node = node
        self._share = share
        self.of_node = Series(len(NODE_COUNTERS) + len(NODE_GAUGES))
        self._queues: dict[int, Series] = {}  # by the queue's number, least recently changed first
        self._queues_due_ms = 0

    def __len__(self) -> int:
        return len(self._queues)

    def of_queue(self, queue: Queue) -> Series | None:
        return self._queues.get(queue.ledger.id)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(NODE_MS / 1000)

    async def sample(self) -> None:
        """Take a sample of the node, and of the queues if it is time."""
        now_ms = self._node.now_ms()
        slices = Slices(self._share, "history")
        counts = TrafficCounts()
        ready = unacked = 0
        for vhost in list(self._node.broker.vhosts.values()):
            totals = await totals_of(self._node, vhost, slices)
            counts.add(totals.counts)
            ready += totals.ready
            unacked += totals.unacked
            await slices.rest_if_over()
        machine = self._node.machine()
        gauges = (
            ready,
            unacked,
            machine.memory_used_bytes,
            machine.memory_held_bytes,
            machine.disk_free_bytes,
            machine.descriptors_used,
            len(self._node.connections.outlets()),
        )
        self.of_node.add(now_ms, (*total_counts(counts), *gauges))
        if now_ms >= self._queues_due_ms:
            self._queues_due_ms = now_ms + QUEUES_MS
            await self._sample_queues(now_ms, slices)

    async def _sample_queues(self, now_ms: int, slices: Slices) -> None:
        admitted = 0
        for vhost in list(self._node.broker.vhosts.values()):
            for index, queue in enumerate(list(vhost.queues.values())):
                if self._sample_queue(queue, now_ms, may_begin=admitted < ADMITTED_MAX):
                    admitted += 1
                if index % _AT_A_TIME == 0:
                    await slices.rest_if_over()
        gone = [key for key, one in self._queues.items() if one.last_ms() <= now_ms - KEPT_MS]
        for key in gone:
            del self._queues[key]

    def _sample_queue(self, queue: Queue, now_ms: int, *, may_begin: bool) -> bool:
        """Take a sample of a queue. Return True if its history begins."""
        key = int(queue.ledger.id)
        values = queue_values(queue)
        series = self._queues.get(key)
        is_new = series is None
        if series is None:
            if not may_begin or not any(values) or not self._has_room(now_ms):
                return False
            series = self._queues[key] = Series(len(values))
        if series.add(now_ms, values) and not is_new:
            self._queues[key] = self._queues.pop(key)
        return is_new

    def _has_room(self, now_ms: int) -> bool:
        """Return True if a queue can be added, after forgetting a calm one if need be."""
        if len(self._queues) < QUEUES_MAX:
            return True
        oldest = next(iter(self._queues))
        if self._queues[oldest].changed_ms > now_ms - CALM_MS:
            return False
        del self._queues[oldest]
        return True


def queue_values(queue: Queue) -> tuple[int, ...]:
    """Return the counters and gauges of a queue."""
    got = queue.got + queue.got_no_ack
    return (
        queue.published,
        queue.delivered + queue.delivered_no_ack + got,
        got,
        queue.acked,
        queue.redelivered,
        int(queue.message_count()),
        int(queue.unacked),
    )


async def get_history(request: Request) -> Response:
    rows = _history(request).of_node.rows()
    now_ms = node_of(request).now_ms()
    return json_response(HistoryInfo(now_ms, NODE_MS, NODE_COUNTERS, NODE_GAUGES, rows))


async def get_queue_history(request: Request) -> Response:
    series = _history(request).of_queue(queue_of(request))
    rows = series.rows() if series is not None else []
    now_ms = node_of(request).now_ms()
    return json_response(HistoryInfo(now_ms, QUEUES_MS, QUEUE_COUNTERS, QUEUE_GAUGES, rows))


def _history(request: Request) -> History:
    history: History = request.app.state.history
    return history


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/history",
        handler=get_history,
        summary="Return samples of the node for the last hour.",
        group="node",
        access=Access.MONITORING,
        answer=HistoryInfo,
    ),
    Operation(
        method="GET",
        path="/api/queues/{vhost}/{name}/history",
        handler=get_queue_history,
        summary="Return samples of a queue for the last hour; none for a calm queue of many.",
        group="queues",
        answer=HistoryInfo,
    ),
)
