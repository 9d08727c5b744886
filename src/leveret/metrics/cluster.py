"""Families of a node in a cluster: its place in the log, its role, and the other nodes.

Every node has them, whatever its role. They are read from the facts that `GET /api/cluster` shows.
A node that follows has these families and those of its process, and nothing else: it runs no
broker. Only the leader knows how far the others are behind.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from leveret.histogram import Histogram
from leveret.http.framework.node import Machine
from leveret.metrics import node
from leveret.metrics.family import COUNTER, GAUGE, Family
from leveret.metrics.text import Labels, Number, histogram_lines, sample

GROUP: Final = "ra_metrics"  # RabbitMQ's name

Facts = dict[str, Any]
Samples = Iterable[tuple[Labels, Number]]


class ClusterFamily:
    """A family, and the function that reads its samples from the facts about the cluster."""

    def __init__(self, kind: str, name: str, about: str, read: Callable[[Facts], Samples]) -> None:
        self.family: Final = Family(name=name, kind=kind, about=about, group=GROUP)
        self._read = read

    def text(self, facts: Facts, name: str = "") -> str:
        shown = name or self.family.name
        lines = [sample(shown, labels, value) for labels, value in self._read(facts)]
        return "".join([self.family.head(shown).decode(), *lines])


def _raft(key: str) -> Callable[[Facts], Samples]:
    """Read a number of the node's Raft member."""

    def read(facts: Facts) -> Samples:
        return [({}, int(facts["raft"][key]))]

    return read


def _members(key: str) -> Callable[[Facts], Samples]:
    """Read a number of each other member; it is left out where it is not known."""

    def read(facts: Facts) -> Samples:
        return [
            ({"member": member["name"]}, member[key])
            for member in facts["members"]
            if member[key] is not None and member["name"] != facts["name"]
        ]

    return read


def _role(facts: Facts) -> Samples:
    return [({"role": facts["raft"]["role"]}, 1)]


def _leader(facts: Facts) -> Samples:
    leader = facts["raft"]["leader"]
    return [({"leader": leader}, 1)] if leader else []


def _connected(facts: Facts) -> Samples:
    return [
        ({"member": member["name"]}, int(member["is_connected"]))
        for member in facts["members"]
        if member["name"] != facts["name"]
    ]


CLUSTER_FAMILIES: Final = (
    ClusterFamily(COUNTER, "rabbitmq_raft_term_total", "Current Raft term.", _raft("term")),
    ClusterFamily(
        GAUGE,
        "rabbitmq_raft_log_snapshot_index",
        "Last block that is in no log file any more.",
        _raft("base"),
    ),
    ClusterFamily(
        GAUGE,
        "rabbitmq_raft_log_commit_index",
        "Last block that this node knows as committed.",
        _raft("commit"),
    ),
    ClusterFamily(
        GAUGE,
        "rabbitmq_raft_log_last_written_index",
        "Last block that is synced on this node.",
        _raft("synced"),
    ),
    ClusterFamily(
        GAUGE, "leveret_raft_log_last_index", "Last block of this node's log.", _raft("last")
    ),
    ClusterFamily(
        GAUGE,
        "leveret_raft_uncommitted_bytes",
        "Bytes of the leader's blocks that are not committed; 0 on other nodes.",
        _raft("uncommitted_bytes"),
    ),
    ClusterFamily(
        COUNTER,
        "leveret_raft_leader_changes_total",
        "Changes of the leader that this node has seen, to itself included.",
        lambda facts: [({}, facts["leader_changes"])],
    ),
    ClusterFamily(GAUGE, "leveret_raft_role", "Always 1; the label names the role.", _role),
    ClusterFamily(
        GAUGE,
        "leveret_raft_leader",
        "Always 1; the label names the leader. Without a known leader it is missing.",
        _leader,
    ),
    ClusterFamily(
        GAUGE,
        "leveret_raft_member_connected",
        "1 if this node is connected with another member, else 0.",
        _connected,
    ),
    ClusterFamily(
        GAUGE,
        "leveret_raft_member_lag_blocks",
        "How many blocks a member is behind the leader; only on the leader.",
        _members("lag_blocks"),
    ),
    ClusterFamily(
        GAUGE,
        "leveret_raft_member_heard_seconds",
        "Time since the leader last heard from a member; only on the leader.",
        _members("heard_s"),
    ),
)


def follower_text(
    facts: Facts, machine: Machine, syncs: Histogram | None, slow_sync_s: float
) -> str:
    """Return all metrics of a node that runs no broker."""
    endpoint = "aggregated"
    parts: list[str] = []
    for family, labels in (
        (node.IDENTITY_INFO, node.identity_labels(facts["name"], endpoint)),
        (node.OUR_INFO, node.our_labels()),
    ):
        parts += [family.head().decode(), sample(family.name, labels, 1)]
    for kind, name, about, read, group in node.MACHINE:
        declared = Family(name=name, kind=kind, about=about, group=group)
        parts += [declared.head().decode(), sample(name, {}, read(machine))]
    if syncs is not None:
        family = node.SYNC_FAMILY
        parts += [family.head().decode(), histogram_lines(family.name, {}, syncs)]
    family = node.SLOW_SYNC_FAMILY
    parts += [family.head().decode(), sample(family.name, {}, slow_sync_s)]
    if facts["raft"] is not None:
        parts += [one.text(facts) for one in CLUSTER_FAMILIES]
    return "".join(parts)
