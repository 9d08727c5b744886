"""Metrics of the node, and figures of its event loop and its log.

The HTTP front asks for a scrape or for the figures; nothing is computed before. The code that
writes a scrape is imported with the first scrape, so that no start waits for it.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from leveret.engine.broker import Broker
from leveret.histogram import Histogram
from leveret.http.framework.node import LoopStats, NodeView
from leveret.http.framework.request_counts import RequestCounts
from leveret.metrics.sources import Sources
from leveret.runtime import logs
from leveret.runtime.tracing import SpanExporter
from leveret.slices import Slices
from leveret.storage.log import Log


class Telemetry:
    """The metrics of one node."""

    def __init__(
        self,
        facts: NodeView,
        alarms: Sequence[str],
        lags: Histogram,
        log_of_node: Callable[[], Log | None],
        span_exporter: SpanExporter | None,
    ) -> None:
        self.requests = RequestCounts()
        self._broker: Broker = facts.broker
        self._log = log_of_node
        self._lags = lags
        self._sources = Sources(
            facts=facts,
            alarms=alarms,
            log=log_of_node,
            lags=lags,
            requests=self.requests,
            dropped_lines=logs.dropped_lines,
            spans=lambda: (
                (0, 0) if span_exporter is None else (span_exporter.exported, span_exporter.dropped)
            ),
        )

    def scrape(self, endpoint: str, slices: Slices) -> AsyncIterator[bytes]:
        """Return a whole scrape: aggregated, or per object."""
        from leveret.metrics.scrape import AGGREGATED, PER_OBJECT, Scrape

        scrape = Scrape(self._sources, slices)
        assert endpoint in (AGGREGATED, PER_OBJECT)
        return scrape.aggregated() if endpoint == AGGREGATED else scrape.per_object()

    def scrape_groups(
        self,
        groups: frozenset[str],
        vhosts: frozenset[str],
        queues: tuple[str, ...],
        slices: Slices,
    ) -> AsyncIterator[bytes]:
        """Return the families of some groups, for some vhosts and queues."""
        from leveret.metrics.scrape import Filter, Scrape

        return Scrape(self._sources, slices).detailed(groups, Filter(vhosts, queues))

    def loop(self) -> LoopStats:
        log = self._log()
        syncs = log.sync_times if log is not None else Histogram(())
        lags = self._lags
        return LoopStats(
            turns=int(self._broker.turn.number),
            lag_ms_p50=lags.quantile(0.5) * 1000,
            lag_ms_p99=lags.quantile(0.99) * 1000,
            lag_ms_max=lags.highest * 1000,
            sync_ms_p50=syncs.quantile(0.5) * 1000,
            sync_ms_p99=syncs.quantile(0.99) * 1000,
            sync_ms_max=syncs.highest * 1000,
            syncs=syncs.count,
            log_bytes=log.disk_bytes() if log is not None else 0,
            log_files=len(log.files()) if log is not None else 0,
        )
