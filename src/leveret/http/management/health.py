"""Health checks for load balancers and monitors: 200 if all is well, else 503 with the reason.

Every user who may see a vhost may check its aliveness. Checks of clusters and mirrors always
succeed on a single node. In a cluster the leader answers here. A node that follows asks it, and
answers the checks of a node itself (`leveret.runtime.follower_checks`), with the same functions.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.http.framework.cluster_nodes import cluster_nodes, is_critical
from leveret.http.framework.node import ClusterNodeFacts, Listener
from leveret.http.framework.operations import Operation
from leveret.http.framework.permissions import seen_vhost, sees_all
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.management.nodes import (
    LOW_ON_DISK,
    LOW_ON_MEMORY,
    disk_alarms,
    require_node,
    slow_disks,
)

CHECKS: Final = "/api/health/checks"
PORT_MAX: Final = 65535
# RabbitMQ: names of protocols in requests, and the protocols of our listeners.
PROTOCOLS: Final = {
    "amqp": {"amqp"},
    "amqp091": {"amqp"},
    "amqp0.9.1": {"amqp"},
    "amqp/ssl": {"amqp/ssl"},
    "amqps": {"amqp/ssl"},
    "http": {"http"},
    "https": {"https"},
}
# RabbitMQ: names of resources in alarms.
_RESOURCES: Final = {LOW_ON_MEMORY: "memory", LOW_ON_DISK: "disk space"}
_UNIT_MS: Final = {
    "days": 86_400_000,
    "weeks": 7 * 86_400_000,
    "months": 30 * 86_400_000,
    "years": 365 * 86_400_000,
}
_WITHIN_DIGITS_MAX: Final = 6


class SlowDisk(msgspec.Struct):
    """A disk whose syncs take long."""

    node: str
    data: str  # the data directory; empty for users who may not see the nodes
    sync_ms: int  # time of a sync


class CheckResult(msgspec.Struct, kw_only=True):
    """Answer to a health check."""

    status: str  # "ok" or "failed"
    reason: str | UnsetType = UNSET
    port: int | UnsetType = UNSET
    protocol: str | UnsetType = UNSET
    missing: int | str | UnsetType = UNSET
    ports: list[int] | UnsetType = UNSET
    protocols: list[str] | UnsetType = UNSET
    alarms: list[dict[str, str]] | UnsetType = UNSET
    disks: list[SlowDisk] | UnsetType = UNSET
    expired: list[dict[str, str]] | UnsetType = UNSET


OK: Final = CheckResult(status="ok")
# RabbitMQ: its text. Here every durable queue has a copy on every node.
QUORUM_CRITICAL: Final = (
    "There are quorum queues that would lose their quorum if the target node is shut down"
)
SINGLE_NODE: Final = CheckResult(status="ok", reason="single node cluster")


def status_of(check: CheckResult) -> int:
    """Return the HTTP status of a result."""
    return 200 if check.status == OK.status else 503


def _answer(check: CheckResult) -> Response:
    return json_response(check, status=status_of(check))


def quorum_result(nodes: Sequence[ClusterNodeFacts], name: str) -> CheckResult:
    """Return whether a cluster keeps its majority without a node."""
    if len(nodes) == 1:
        return SINGLE_NODE
    if is_critical(nodes, name):
        return CheckResult(status="failed", reason=QUORUM_CRITICAL)
    return OK


def follower_quorum_result(nodes: Sequence[ClusterNodeFacts], name: str) -> CheckResult | None:
    """Return the result for a node that follows; None if it is the one that the leader has.

    The leader knows which other disks are full. What it says about itself is true of every voter
    whose disk is not.
    """
    result = quorum_result(nodes, name)
    own = next((one for one in nodes if one.name == name), None)
    if result is not OK or own is None:
        return result
    return None if own.is_voter and own.can_write else result


def period_ms(count: str, unit: str) -> int | None:
    """Return the time that a number of days, weeks, months or years takes; None if invalid."""
    if unit not in _UNIT_MS or not count.isascii() or not count.isdigit():
        return None
    return int(count) * _UNIT_MS[unit] if len(count) <= _WITHIN_DIGITS_MAX else None


def certificates_result(end_ms: int, ends: Sequence[tuple[str, int]]) -> CheckResult:
    """Return whether a certificate ends before a time."""
    expired = [{"name": name} for name, ends_ms in ends if ends_ms <= end_ms]
    if not expired:
        return OK
    return CheckResult(status="failed", reason="Certificates expiring", expired=expired)


def port_of(text: str) -> int | None:
    """Return the number of a port; None if it is none."""
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > PORT_MAX:
        return None
    return int(text)


def port_result(port: int, listeners: Sequence[Listener]) -> CheckResult:
    """Return whether a node listens on a port."""
    ports = [listener.port for listener in listeners]
    if port in ports:
        return CheckResult(status="ok", port=port)
    return CheckResult(status="failed", reason="No active listener", missing=port, ports=ports)


def protocol_result(protocols: str, listeners: Sequence[Listener]) -> CheckResult:
    """Return whether a node listens for one of some protocols, separated by commas."""
    active = [listener.protocol for listener in listeners]
    for name in protocols.split(","):
        if PROTOCOLS.get(name.lower(), set()).intersection(active):
            return CheckResult(status="ok", protocol=name)
    return CheckResult(
        status="failed", reason="No active listener", missing=protocols, protocols=active
    )


def alarms_result(alarms: Sequence[tuple[str, str]]) -> CheckResult:
    """Return the result of a check of alarms, each with its node."""
    if not alarms:
        return OK
    found = [{"node": name, "resource": _RESOURCES.get(alarm, alarm)} for name, alarm in alarms]
    reason = "; ".join(dict.fromkeys(alarm for _, alarm in alarms))
    return CheckResult(status="failed", reason=reason, alarms=found)


async def check_local_alarms(request: Request) -> Response:
    node = node_of(request)
    return _answer(alarms_result([(node.node_name, alarm) for alarm in node.alarms()]))


async def check_alarms(request: Request) -> Response:
    """Check the alarms of all nodes."""
    node = node_of(request)
    alarms = [(node.node_name, alarm) for alarm in node.alarms()]
    alarms += [(name, LOW_ON_DISK) for name in disk_alarms(node)]
    return _answer(alarms_result(alarms))


def slow_disk_text(sync_s: float) -> str:
    """Return that the disk of a node is slow; empty if it is not.

    It names no directory: `GET /api/health` needs no login.
    """
    return f"slow: a sync takes {sync_s * 1000:.0f} ms" if sync_s > 0 else ""


async def check_disks(request: Request) -> Response:
    """Check the disks of all nodes. Only users who may see the nodes see their directories."""
    disks = slow_disks(node_of(request))
    if not disks:
        return json_response(OK)
    shows_data = sees_all(user_of(request))
    found = [
        SlowDisk(name, data if shows_data else "", round(sync_s * 1000))
        for name, data, sync_s in disks
    ]
    reason = "; ".join(map(_slow_disk_sentence, found))
    return _answer(CheckResult(status="failed", reason=reason, disks=found))


def _slow_disk_sentence(disk: SlowDisk) -> str:
    sync = f"a sync of {disk.data}" if disk.data else "a sync"
    return f"the disk of node {disk.node} is slow: {sync} takes {disk.sync_ms} ms"


async def answer_ok(request: Request) -> Response:
    return json_response(OK)


async def answer_single_node(request: Request) -> Response:
    return json_response(SINGLE_NODE)


async def check_quorum(request: Request) -> Response:
    """Check that the cluster keeps its majority without this node."""
    node = node_of(request)
    return _answer(quorum_result(cluster_nodes(node), node.node_name))


async def check_size(request: Request) -> Response:
    """Check that all listed nodes have joined the cluster."""
    cluster = node_of(request).cluster
    missing = cluster.missing_nodes() if cluster is not None else []
    if missing:
        reason = f"not in the cluster yet: {', '.join(missing)}"
        return _answer(CheckResult(status="failed", reason=reason))
    return json_response(OK)


async def check_leaders(request: Request) -> Response:
    """Answer ok: this node leads every quorum queue."""
    if "vhost" in request.path_params:
        seen_vhost(request)
    return json_response(OK)


async def check_certificates(request: Request) -> Response:
    unit = part_of(request, "unit")
    within_ms = period_ms(part_of(request, "within"), unit)
    if unit not in _UNIT_MS:
        known = ", ".join(_UNIT_MS)
        raise HTTPException(400, f"Time unit not recognised. Supported units: {known}.")
    if within_ms is None:
        raise HTTPException(400, "Invalid expiration value")
    node = node_of(request)
    return _answer(certificates_result(node.now_ms() + within_ms, node.certificates()))


async def check_port(request: Request) -> Response:
    port = port_of(part_of(request, "port"))
    if port is None:
        raise HTTPException(400, "Invalid port")
    return _answer(port_result(port, node_of(request).listeners()))


async def check_protocol(request: Request) -> Response:
    return _answer(protocol_result(part_of(request, "protocols"), node_of(request).listeners()))


async def check_ready(request: Request) -> Response:
    """Check that the node can serve clients, and that the servers of its jobs have answered."""
    return _faults_result(node_of(request).jobs.report().not_ready())


async def check_jobs(request: Request) -> Response:
    """Check that jobs can be enqueued: in the servers of the jobs service, or in the node."""
    node = node_of(request)
    report = node.jobs.report()
    return _faults_result(report.faults() if report.servers else list(node.alarms()))


async def check_background(request: Request) -> Response:
    """Check the work that no client waits for: reloads of files, spans, tasks of the node."""
    return _faults_result(node_of(request).background_faults())


def _faults_result(faults: list[str]) -> Response:
    if not faults:
        return json_response(OK)
    return _answer(CheckResult(status="failed", reason="; ".join(faults)))


async def check_connections(request: Request) -> Response:
    """Check whether the node has file descriptors left for more connections."""
    machine = node_of(request).machine()
    if machine.descriptors_max == 0 or machine.descriptors_used < machine.descriptors_max:
        return json_response(OK)
    return _answer(
        CheckResult(status="failed", reason="no file descriptors are left for connections")
    )


async def check_node(request: Request) -> Response:
    """RabbitMQ: the check of older versions. Check the alarms."""
    if "node" in request.path_params:
        require_node(request)
    return await check_local_alarms(request)


async def check_aliveness(request: Request) -> Response:
    """RabbitMQ: it declares a queue and publishes to it. For us the answer itself is proof."""
    seen_vhost(request)
    return json_response(OK)


_check: Final = partial(
    Operation,
    method="GET",
    group="health",
    answer=CheckResult,
    failures=((503, CheckResult),),
)
_LEADERS: Final = f"{CHECKS}/quorum-queues-without-elected-leaders"
OPERATIONS: Final = (
    _check(
        path=f"{CHECKS}/alarms", handler=check_alarms, summary="Check that no alarm is in force."
    ),
    _check(
        path=f"{CHECKS}/local-alarms",
        handler=check_local_alarms,
        summary="Check that no alarm is in force on this node.",
    ),
    _check(
        path=f"{CHECKS}/disk-speed",
        handler=check_disks,
        summary="Check that no disk of the cluster needs long for a sync.",
    ),
    _check(
        path=f"{CHECKS}/metadata-store/initialized",
        handler=answer_ok,
        summary="Check that the node has loaded its definitions.",
    ),
    _check(
        path=f"{CHECKS}/metadata-store/initialized/with-data",
        handler=answer_ok,
        summary="Check that the node has loaded its definitions, and that there are some.",
    ),
    _check(
        path=f"{CHECKS}/certificate-expiration/{{within}}/{{unit}}",
        handler=check_certificates,
        summary="Check that no certificate ends within a number of days, weeks, months or years.",
    ),
    _check(
        path=f"{CHECKS}/port-listener/{{port}}",
        handler=check_port,
        summary="Check that the node listens on a port.",
    ),
    _check(
        path=f"{CHECKS}/protocol-listener/{{protocols}}",
        handler=check_protocol,
        summary="Check that the node listens for one of these protocols, separated by commas.",
    ),
    _check(path=f"{CHECKS}/virtual-hosts", handler=answer_ok, summary="Check that all vhosts run."),
    _check(
        path=f"{_LEADERS}/all-vhosts",
        handler=check_leaders,
        summary="Check that every quorum queue has a leader.",
    ),
    _check(
        path=f"{_LEADERS}/all-vhosts/pattern/{{pattern}}",
        handler=check_leaders,
        summary="Check that every quorum queue with a matching name has a leader.",
    ),
    _check(
        path=f"{_LEADERS}/vhost/{{vhost}}",
        handler=check_leaders,
        summary="Check that every quorum queue of a vhost has a leader.",
    ),
    _check(
        path=f"{_LEADERS}/vhost/{{vhost}}/pattern/{{pattern}}",
        handler=check_leaders,
        summary="Check that every quorum queue of a vhost with a matching name has a leader.",
    ),
    _check(
        path=f"{CHECKS}/node-is-quorum-critical",
        handler=check_quorum,
        summary="Check that no quorum queue would lose its majority without this node.",
    ),
    _check(
        path=f"{CHECKS}/node-is-mirror-sync-critical",
        handler=answer_single_node,
        summary="Check that no mirrored queue would lose messages without this node.",
    ),
    _check(
        path=f"{CHECKS}/is-in-service",
        handler=answer_ok,
        summary="Check that the node is not being drained.",
    ),
    _check(
        path=f"{CHECKS}/below-node-connection-limit",
        handler=check_connections,
        summary="Check that the node can accept more connections.",
    ),
    _check(
        path=f"{CHECKS}/ready-to-serve-clients",
        handler=check_ready,
        summary="Check that the node listens and serves.",
    ),
    _check(
        path=f"{CHECKS}/jobs",
        handler=check_jobs,
        summary="Check that jobs can be enqueued: Redis, the shards and their clocks, or the node.",
    ),
    _check(
        path=f"{CHECKS}/background",
        handler=check_background,
        summary="Check that no work in the background fails, such as reloads of certificates.",
    ),
    _check(
        path=f"{CHECKS}/reached-target-cluster-size",
        handler=check_size,
        summary="Check that the cluster has its target number of nodes.",
    ),
    _check(
        path="/api/healthchecks/node", handler=check_node, summary="Check that the node is well."
    ),
    _check(
        path="/api/healthchecks/node/{node}",
        handler=check_node,
        summary="Check that one node is well.",
    ),
    Operation(
        method="GET",
        path="/api/aliveness-test/{vhost}",
        handler=check_aliveness,
        summary="Check that a vhost works.",
        group="health",
        answer=CheckResult,
    ),
)
