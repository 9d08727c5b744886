"""Nodes in RabbitMQ's form.

The leader of a cluster answers for all nodes. The others report their resources every few seconds.
A node that does not run has no fields about resources, as in RabbitMQ.

Fields that only Erlang has (processes, reductions, Mnesia, the cache of file handles) are 0 or
left out. `proc_used` counts the objects that are processes in RabbitMQ: connections, channels and
queues. The leader has all of them; a node that follows has the connections that it relays.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret import __version__
from leveret.http.framework.cluster_nodes import cluster_nodes
from leveret.http.framework.listing import LIST_QUERY, answer_list, flag_of, with_columns
from leveret.http.framework.node import ClusterNodeFacts, Machine, NodeReport, NodeView
from leveret.http.framework.operations import Access, Operation, Query
from leveret.http.framework.rates import Rate, RateSamples
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response
from leveret.http.management.overview import TypeInfo, exchange_types
from leveret.http.management.stats import churn_counts, rates_of

PROCESSES_MAX: Final = 1_048_576
LOW_ON_MEMORY: Final = "low on memory"
LOW_ON_DISK: Final = "low on disk"


class Application(msgspec.Struct):
    """Software that runs in the node."""

    name: str
    description: str
    version: str


class NodeContext(msgspec.Struct):
    """An address of this API."""

    description: str
    ip: str
    port: str
    path: str


class MemoryParts(msgspec.Struct):
    """How the memory of the node is used, in bytes."""

    queue_procs: int  # held by messages
    other_proc: int
    total: dict[str, int]
    strategy: str = "rss"


class MemoryShares(msgspec.Struct):
    """How the memory of the node is used, in percent."""

    queue_procs: int
    other_proc: int
    total: int = 100


class NodeMemory(msgspec.Struct):
    memory: MemoryParts


class NodeMemoryShares(msgspec.Struct):
    memory: MemoryShares


class NodeInfo(msgspec.Struct, kw_only=True):
    """One node."""

    name: str
    type: str = "disc"
    running: bool = True
    being_drained: bool = False
    os_pid: str
    uptime: int  # ms
    run_queue: int
    processors: int
    rates_mode: str = "basic"
    mem_used: int
    mem_used_details: Rate
    mem_limit: int
    mem_alarm: bool
    mem_calculation_strategy: str = "rss"
    disk_free: int
    disk_free_details: Rate
    disk_free_limit: int
    disk_free_alarm: bool
    fd_used: int
    fd_used_details: Rate
    fd_total: int
    sockets_used: int
    sockets_used_details: Rate
    sockets_total: int
    proc_used: int
    proc_used_details: Rate
    proc_total: int = PROCESSES_MAX
    context_switches: int
    context_switches_details: Rate
    connection_created: int
    connection_created_details: Rate
    connection_closed: int
    connection_closed_details: Rate
    channel_created: int
    channel_created_details: Rate
    channel_closed: int
    channel_closed_details: Rate
    queue_declared: int
    queue_declared_details: Rate
    queue_created: int
    queue_created_details: Rate
    queue_deleted: int
    queue_deleted_details: Rate
    partitions: list[str] = []
    cluster_links: list[str] = []
    enabled_plugins: list[str]
    applications: list[Application]
    auth_mechanisms: list[TypeInfo]
    exchange_types: list[TypeInfo]
    contexts: list[NodeContext]
    db_dir: str
    config_files: list[str] = []
    log_files: list[str] = []  # none: the node logs to stderr
    net_ticktime: int = 60
    memory: MemoryParts | UnsetType = UNSET  # with `memory=true`


class OtherNodeInfo(msgspec.Struct, kw_only=True):
    """Another node of the cluster: the fields of `NodeInfo` that are known."""

    name: str
    type: str = "disc"
    running: bool
    being_drained: bool = False
    partitions: list[str] = []
    applications: list[Application] = []
    cluster_links: list[str] = []
    os_pid: str | UnsetType = UNSET  # this and all fields below: if it runs and has reported them
    uptime: int | UnsetType = UNSET
    run_queue: int | UnsetType = UNSET
    processors: int | UnsetType = UNSET
    rates_mode: str | UnsetType = UNSET
    mem_used: int | UnsetType = UNSET
    mem_used_details: Rate | UnsetType = UNSET
    mem_limit: int | UnsetType = UNSET
    mem_alarm: bool | UnsetType = UNSET
    mem_calculation_strategy: str | UnsetType = UNSET
    disk_free: int | UnsetType = UNSET
    disk_free_details: Rate | UnsetType = UNSET
    disk_free_limit: int | UnsetType = UNSET
    disk_free_alarm: bool | UnsetType = UNSET
    fd_used: int | UnsetType = UNSET
    fd_used_details: Rate | UnsetType = UNSET
    fd_total: int | UnsetType = UNSET
    sockets_used: int | UnsetType = UNSET
    sockets_used_details: Rate | UnsetType = UNSET
    sockets_total: int | UnsetType = UNSET
    proc_used: int | UnsetType = UNSET
    proc_used_details: Rate | UnsetType = UNSET
    proc_total: int | UnsetType = UNSET
    context_switches: int | UnsetType = UNSET
    context_switches_details: Rate | UnsetType = UNSET
    db_dir: str | UnsetType = UNSET
    memory: MemoryParts | UnsetType = UNSET  # with `memory=true`


_CHURN: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)


def node_info(node: NodeView, rates: RateSamples) -> NodeInfo:
    """Return the state of the node, as of now."""
    machine = node.machine()
    sockets = len(node.connections.outlets())
    channels = sum(len(node.connections.sessions(o)) for o in node.connections.outlets())
    processes = sockets + channels + sum(len(v.queues) for v in node.broker.vhosts.values())
    gauges = (
        machine.memory_used_bytes,
        machine.disk_free_bytes,
        machine.descriptors_used,
        sockets,
        processes,
    )
    now_ms = node.now_ms()
    switches = (machine.context_switches,)
    mem, disk, fds, socks, procs = rates.of("node", gauges, now_ms, gauges=len(gauges))
    (switching,) = rates.of("switches", switches, now_ms)
    alarms = node.alarms()
    return NodeInfo(
        name=node.node_name,
        os_pid=str(machine.pid),
        uptime=max(0, now_ms - machine.started_ms),
        run_queue=int(machine.load),
        processors=machine.processors,
        mem_used=machine.memory_used_bytes,
        mem_used_details=mem,
        mem_limit=machine.memory_limit_bytes,
        mem_alarm=LOW_ON_MEMORY in alarms,
        disk_free=machine.disk_free_bytes,
        disk_free_details=disk,
        disk_free_limit=machine.disk_limit_bytes,
        disk_free_alarm=LOW_ON_DISK in alarms,
        fd_used=machine.descriptors_used,
        fd_used_details=fds,
        fd_total=machine.descriptors_max,
        sockets_used=sockets,
        sockets_used_details=socks,
        sockets_total=machine.descriptors_max,
        proc_used=processes,
        proc_used_details=procs,
        context_switches=machine.context_switches,
        context_switches_details=switching,
        enabled_plugins=["rabbitmq_management"],
        applications=_applications(__version__),
        auth_mechanisms=_mechanisms(node),
        exchange_types=exchange_types(),
        contexts=_contexts(node),
        db_dir=machine.data,
        **_churn(node, rates, now_ms),
    )


def _applications(version: str) -> list[Application]:
    return [Application("leveret", "Leveret message broker", version)]


def _churn(node: NodeView, rates: RateSamples, now_ms: int) -> dict[str, Any]:
    counts = churn_counts(node.broker.turn.churn)
    found = rates.of("churn", counts, now_ms)
    fields: dict[str, Any] = dict(zip(_CHURN, counts, strict=True))
    for name, rate in zip(_CHURN, found, strict=True):
        fields[f"{name}_details"] = rate
    return fields


def _mechanisms(node: NodeView) -> list[TypeInfo]:
    found = [TypeInfo("PLAIN", "SASL PLAIN"), TypeInfo("AMQPLAIN", "AMQPLAIN of RabbitMQ")]
    if node.settings.tls_verify != "none" and node.settings.amqps_port is not None:
        found.append(TypeInfo("EXTERNAL", "the certificate of a client"))
    return found


def _contexts(node: NodeView) -> list[NodeContext]:
    return [
        NodeContext("Leveret Management", one.host, str(one.port), "/")
        for one in node.listeners()
        if one.protocol.startswith("http")
    ]


def memory_parts(machine: Machine) -> MemoryParts:
    used = machine.memory_used_bytes
    held = min(machine.memory_held_bytes, used)
    total = {"rss": used, "allocated": used, "erlang": used}
    return MemoryParts(queue_procs=held, other_proc=used - held, total=total)


async def list_nodes(request: Request) -> Response:
    node = node_of(request)
    infos: list[NodeInfo | OtherNodeInfo] = [
        node_info(node, rates_of(request))
        if one.name == node.node_name
        else _other(node, one, rates_of(request))
        for one in cluster_nodes(node)
    ]
    return await answer_list(request, infos, _name, _itself)


def _report_of(node: NodeView, one: ClusterNodeFacts) -> NodeReport | None:
    """Return the report of another node; None if it does not run, or has sent none lately."""
    return node.cluster.report_of(one.name) if node.cluster is not None and one.is_running else None


def _other(node: NodeView, one: ClusterNodeFacts, rates: RateSamples) -> OtherNodeInfo:
    info = OtherNodeInfo(name=one.name, running=one.is_running, being_drained=one.is_drained)
    report = _report_of(node, one)
    if report is None:
        return info
    machine = report.machine
    info.applications = _applications(report.version) if report.version else []
    info.rates_mode = "basic"
    info.mem_calculation_strategy = "rss"
    # The report has the time of its arrival, so one that is read twice is one sample.
    gauges = machine.memory_used_bytes, machine.disk_free_bytes, machine.descriptors_used
    key = "node", one.name, machine.pid
    counts = machine.context_switches, *gauges, report.clients or 0
    switching, mem, disk, fds, clients = rates.of(
        key, counts, node.now_ms() - report.age_ms, gauges=len(counts) - 1
    )
    info.mem_used_details, info.disk_free_details, info.fd_used_details = mem, disk, fds
    info.context_switches_details = switching
    if report.clients is not None:
        info.sockets_used = info.proc_used = report.clients
        info.sockets_used_details = info.proc_used_details = clients
        info.proc_total = PROCESSES_MAX
    info.os_pid = str(machine.pid)
    info.uptime = report.uptime_ms
    info.run_queue = int(machine.load)
    info.processors = machine.processors
    info.mem_used = machine.memory_used_bytes
    info.mem_limit = machine.memory_limit_bytes
    info.mem_alarm = False  # only messages can raise it, and this node holds none in memory
    info.disk_free = machine.disk_free_bytes
    info.disk_free_limit = machine.disk_limit_bytes
    info.disk_free_alarm = has_disk_alarm(report)
    info.fd_used = machine.descriptors_used
    info.fd_total = machine.descriptors_max
    info.sockets_total = machine.descriptors_max
    info.context_switches = machine.context_switches
    info.db_dir = machine.data
    return info


def has_disk_alarm(report: NodeReport) -> bool:
    """Return True if the disk of another node is full, or nearly so."""
    machine = report.machine
    return bool(report.disk_fault) or machine.disk_free_bytes < machine.disk_limit_bytes


def disk_alarms(node: NodeView) -> list[str]:
    """Return the names of the other nodes whose disk is full, or nearly so."""
    found = []
    for one in cluster_nodes(node):
        report = _report_of(node, one) if one.name != node.node_name else None
        if report is not None and has_disk_alarm(report):
            found.append(one.name)
    return found


def slow_disks(node: NodeView) -> list[tuple[str, str, float]]:
    """Return node, data directory and time of a sync in seconds, of all disks that are slow."""
    found = []
    for one in cluster_nodes(node):
        if one.name == node.node_name:
            data, sync_s = str(node.settings.data), node.slow_sync_s()
        else:
            report = _report_of(node, one)
            data, sync_s = (
                ("", 0.0) if report is None else (report.machine.data, report.slow_sync_s)
            )
        if sync_s > 0:
            found.append((one.name, data, sync_s))
    return found


def _name(info: NodeInfo | OtherNodeInfo) -> str:
    return info.name


def _itself(info: NodeInfo | OtherNodeInfo) -> NodeInfo | OtherNodeInfo:
    return info


async def get_node(request: Request) -> Response:
    node = node_of(request)
    one = _requested(request)
    if one.name == node.node_name:
        info: NodeInfo | OtherNodeInfo = node_info(node, rates_of(request))
    else:
        info = _other(node, one, rates_of(request))
    if flag_of(request, "memory"):
        machine = _machine_of(node, one)
        info.memory = UNSET if machine is None else memory_parts(machine)
    return json_response(with_columns(request, info))


def _requested(request: Request) -> ClusterNodeFacts:
    """Return the node of the path, or answer 404."""
    name = part_of(request, "node")
    for one in cluster_nodes(node_of(request)):
        if one.name == name:
            return one
    raise HTTPException(404, "Not Found")


def _machine_of(node: NodeView, one: ClusterNodeFacts) -> Machine | None:
    """Return the resources of a node; None if they are not known."""
    if one.name == node.node_name:
        return node.machine()
    report = _report_of(node, one)
    return None if report is None else report.machine


def _requested_memory(request: Request) -> MemoryParts:
    """Return how the memory of the node of the path is used, or answer 404."""
    machine = _machine_of(node_of(request), _requested(request))
    if machine is None:
        raise HTTPException(404, "Not Found")
    return memory_parts(machine)


def require_node(request: Request) -> None:
    """Answer 404 unless the path names this node."""
    if part_of(request, "node") != node_of(request).node_name:
        raise HTTPException(404, "Not Found")


async def get_memory(request: Request) -> Response:
    return json_response(NodeMemory(_requested_memory(request)))


async def get_memory_shares(request: Request) -> Response:
    parts = _requested_memory(request)
    held = round(100 * parts.queue_procs / max(parts.total["rss"], 1))
    return json_response(NodeMemoryShares(MemoryShares(held, 100 - held)))


_GROUP: Final = "node"
OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/nodes",
        handler=list_nodes,
        summary="List the nodes of the cluster.",
        group=_GROUP,
        access=Access.MONITORING,
        query=LIST_QUERY,
        answer=list[NodeInfo],
    ),
    Operation(
        method="GET",
        path="/api/nodes/{node}",
        handler=get_node,
        summary="Return one node.",
        group=_GROUP,
        access=Access.MONITORING,
        query=(*LIST_QUERY[:1], Query("memory", "whether to add how memory is used", bool)),
        answer=NodeInfo,
    ),
    Operation(
        method="GET",
        path="/api/nodes/{node}/memory",
        handler=get_memory,
        summary="Return how the memory of a node is used, in bytes.",
        group=_GROUP,
        access=Access.MONITORING,
        answer=NodeMemory,
    ),
    Operation(
        method="GET",
        path="/api/nodes/{node}/memory/relative",
        handler=get_memory_shares,
        summary="Return how the memory of a node is used, in percent.",
        group=_GROUP,
        access=Access.MONITORING,
        answer=NodeMemoryShares,
    ),
)
