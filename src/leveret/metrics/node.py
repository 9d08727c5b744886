"""Families of the node itself: open objects, resources, alarms, the log and the event loop."""

import os
from collections.abc import Callable
from typing import Final

from leveret import __version__, build_info
from leveret.histogram import Histogram
from leveret.http.framework.node import Machine
from leveret.metrics import queue_lines
from leveret.metrics.family import COUNTER, GAUGE, HISTOGRAM, Family
from leveret.metrics.node_family import PROTOCOL, NodeFamily, Read, Samples, node_family
from leveret.metrics.sources import NodeTotals
from leveret.metrics.text import Labels, Number
from leveret.metrics.traffic import TRAFFIC_FAMILIES

CHURN: Final = "connection_churn_metrics"
COARSE: Final = "node_coarse_metrics"
METRICS: Final = "node_metrics"
PERSISTER: Final = "node_persister_metrics"

_CHURN: Final = tuple(
    node_family(
        COUNTER,
        f"rabbitmq_{what}_total",
        about,
        lambda r, what=what: getattr(r.sources.facts.broker.turn.churn, what),  # type: ignore[misc]
        CHURN,
    )
    for what, about in (
        ("connections_opened", "Connections opened."),
        ("connections_closed", "Connections closed or lost."),
        ("channels_opened", "Channels opened."),
        ("channels_closed", "Channels closed."),
        ("queues_declared", "Queue declarations, including existing queues."),
        ("queues_created", "Queues created."),
        ("queues_deleted", "Queues deleted."),
    )
)

# Families of the process and its machine, which a node of a cluster has in every role: kind, name,
# description, how it is read, group.
MACHINE: Final[tuple[tuple[str, str, str, Callable[[Machine], Number], str], ...]] = (
    (
        GAUGE,
        "rabbitmq_process_open_fds",
        "Open file descriptors.",
        lambda m: m.descriptors_used,
        COARSE,
    ),
    (
        GAUGE,
        "rabbitmq_process_max_fds",
        "Maximum number of open file descriptors.",
        lambda m: m.descriptors_max,
        METRICS,
    ),
    (
        GAUGE,
        "rabbitmq_process_resident_memory_bytes",
        "Memory of the process.",
        lambda m: m.memory_used_bytes,
        COARSE,
    ),
    (
        GAUGE,
        "rabbitmq_disk_space_available_bytes",
        "Free space on the disk of the data directory.",
        lambda m: m.disk_free_bytes,
        COARSE,
    ),
    (
        COUNTER,
        "leveret_process_cpu_seconds_total",
        "Processor time of the process.",
        lambda m: sum(os.times()[:2]),
        "",
    ),
)

_MACHINE: Final = (
    *(
        node_family(kind, name, about, lambda r, read=read: read(r.machine), group)  # type: ignore[misc]
        for kind, name, about, read, group in MACHINE
    ),
    node_family(
        GAUGE,
        "rabbitmq_resident_memory_limit_bytes",
        "Memory of messages above which publishers are blocked.",
        lambda r: r.machine.memory_limit_bytes,
        METRICS,
    ),
    node_family(
        GAUGE,
        "rabbitmq_disk_space_available_limit_bytes",
        "Free space below which publishers are blocked.",
        lambda r: r.machine.disk_limit_bytes,
        METRICS,
    ),
    node_family(
        GAUGE,
        "rabbitmq_erlang_uptime_seconds",
        "Time since the node was started.",
        lambda r: (r.now_ms - r.machine.started_ms) / 1000,
        METRICS,
    ),
    node_family(
        GAUGE,
        "leveret_memory_held_bytes",
        "Approximate memory of messages and buffers, which the memory alarm watches.",
        lambda r: r.machine.memory_held_bytes,
    ),
    node_family(
        COUNTER,
        "leveret_log_lines_dropped_total",
        "Lines of the log that were dropped, because stderr was not read or could not be written.",
        lambda r: r.sources.dropped_lines(),
    ),
)


def _alarm(reason: str) -> Read:
    return lambda r: 1 if reason in r.sources.alarms else 0


_ALARMS: Final = (
    node_family(
        GAUGE,
        "rabbitmq_alarms_memory_used_watermark",
        "1 while publishers are blocked because memory is short.",
        _alarm("memory"),
    ),
    node_family(
        GAUGE,
        "rabbitmq_alarms_free_disk_space_watermark",
        "1 while publishers are blocked because disk space is short.",
        _alarm("disk"),
    ),
    node_family(
        GAUGE,
        "rabbitmq_alarms_file_descriptor_limit",
        "1 while no file descriptor is left.",
        lambda r: 1 if r.machine.descriptors_used >= r.machine.descriptors_max > 0 else 0,
    ),
)

_OPEN: Final = (
    node_family(GAUGE, "rabbitmq_connections", "Open connections.", lambda r: r.connections),
    node_family(GAUGE, "rabbitmq_channels", "Open channels.", lambda r: r.channels),
    node_family(GAUGE, "rabbitmq_consumers", "Consumers.", lambda r: r.consumers),
    node_family(GAUGE, "rabbitmq_queues", "Queues and streams.", lambda r: r.queues),
    node_family(
        GAUGE,
        "rabbitmq_global_publishers",
        "Channels that have published.",
        lambda r: [(PROTOCOL, r.publishers)],
    ),
    node_family(
        GAUGE, "rabbitmq_global_consumers", "Consumers.", lambda r: [(PROTOCOL, r.consumers)]
    ),
    node_family(GAUGE, "leveret_exchanges", "Exchanges.", lambda r: r.exchanges),
    node_family(GAUGE, "leveret_bindings", "Bindings.", lambda r: r.bindings),
    node_family(
        GAUGE, "leveret_vhosts", "Virtual hosts.", lambda r: len(r.sources.facts.broker.vhosts)
    ),
    node_family(GAUGE, "leveret_streams", "Streams.", lambda r: r.streams),
    node_family(
        GAUGE,
        "leveret_stream_segments",
        "Segments of all streams.",
        lambda r: r.sums[queue_lines.SEGMENTS],
    ),
    node_family(GAUGE, "leveret_stream_bytes", "Size of all streams.", lambda r: r.stream_bytes),
    node_family(
        GAUGE,
        "leveret_stream_cursors",
        "Cursors of all streams: positions of consumers, archives and queries.",
        lambda r: r.cursors,
    ),
    node_family(
        GAUGE,
        "leveret_stream_cursor_lag_messages_max",
        "Messages after the cursor that has the most of them.",
        lambda r: r.cursor_lag_messages,
    ),
    node_family(
        GAUGE,
        "leveret_stream_cursor_lag_seconds_max",
        "Age of the oldest message after a cursor; 0 if there is none.",
        lambda r: r.cursor_lag_s,
    ),
)

# Also of a node that follows.
SYNC_FAMILY: Final = Family(
    name="leveret_journal_sync_seconds",
    kind=HISTOGRAM,
    about="Time to write and sync a block of the log.",
)
SLOW_SYNC_FAMILY: Final = Family(
    name="leveret_slow_sync_seconds",
    kind=GAUGE,
    about="Time of a sync while the disk is slow, else 0.",
)


def _syncs(r: NodeTotals) -> Histogram | Samples:
    log = r.sources.log()
    return log.sync_times if log is not None else ()


def _log_figure(what: str) -> Read:
    def read(r: NodeTotals) -> Number:
        log = r.sources.log()
        if log is None:
            return 0
        if what == "time":
            return log.sync_times.sum
        if what == "syncs":
            return log.sync_times.count
        if what == "files":
            return len(log.files())
        return log.disk_bytes() if what == "disk" else log.written_bytes

    return read


_LOG: Final = (
    node_family(COUNTER, "rabbitmq_io_sync_ops_total", "Syncs.", _log_figure("syncs"), PERSISTER),
    node_family(
        COUNTER,
        "rabbitmq_io_sync_time_seconds_total",
        "Time to write and sync blocks.",
        _log_figure("time"),
        PERSISTER,
    ),
    node_family(
        COUNTER, "rabbitmq_io_write_ops_total", "Blocks written.", _log_figure("syncs"), PERSISTER
    ),
    node_family(
        COUNTER,
        "rabbitmq_io_write_bytes_total",
        "Bytes of blocks written.",
        _log_figure("written"),
        PERSISTER,
    ),
    NodeFamily(SYNC_FAMILY, _syncs),
    NodeFamily(SLOW_SYNC_FAMILY, lambda r: r.sources.facts.slow_sync_s()),
    node_family(GAUGE, "leveret_log_bytes", "Size of the log files.", _log_figure("disk")),
    node_family(GAUGE, "leveret_log_files", "Log files.", _log_figure("files")),
)


_LOOP: Final = (
    node_family(
        HISTOGRAM,
        "leveret_loop_lag_seconds",
        "Delay of a timer of the event loop, measured while the node is busy.",
        lambda r: r.sources.lags,
    ),
    node_family(
        COUNTER,
        "leveret_turns_total",
        "Turns of the engine.",
        lambda r: r.sources.facts.broker.turn.number,
    ),
    node_family(
        COUNTER,
        "leveret_http_requests_total",
        "HTTP requests by method and status.",
        lambda r: [
            ({"method": method, "status": str(status)}, count)
            for (method, status), count in sorted(r.sources.requests.counts.items())
        ],
    ),
    node_family(
        HISTOGRAM,
        "leveret_http_request_seconds",
        "Time to answer an HTTP request, including sending.",
        lambda r: r.sources.requests.times,
    ),
    node_family(
        COUNTER,
        "leveret_trace_spans_total",
        "Spans of traced messages, by result.",
        lambda r: [
            ({"result": "exported"}, r.sources.spans()[0]),
            ({"result": "dropped"}, r.sources.spans()[1]),
        ],
    ),
)


NODE_FAMILIES: Final = (
    *_CHURN,
    *_OPEN,
    *TRAFFIC_FAMILIES,
    *_MACHINE,
    *_ALARMS,
    *_LOG,
    *_LOOP,
)

BUILD_INFO: Final = Family(
    name="rabbitmq_build_info", kind=GAUGE, about="Always 1; the labels hold the versions."
)
IDENTITY_INFO: Final = Family(
    name="rabbitmq_identity_info", kind=GAUGE, about="Always 1; the labels name the node."
)
OUR_INFO: Final = Family(
    name="leveret_build_info", kind=GAUGE, about="Always 1; the labels hold version and form."
)


def build_labels(product_version: str) -> Labels:
    return {
        "rabbitmq_version": product_version,
        "product_name": "Leveret",
        "product_version": __version__,
    }


def identity_labels(node: str, endpoint: str) -> Labels:
    return {
        "rabbitmq_node": node,
        "rabbitmq_cluster": node,
        "rabbitmq_cluster_permanent_id": node,
        "rabbitmq_endpoint": endpoint,
    }


def our_labels() -> Labels:
    return {
        "version": __version__,
        "form": "compiled" if build_info.is_compiled() else "interpreted",
        "python": build_info.python(),
    }
