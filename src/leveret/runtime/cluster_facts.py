"""Facts that a node reports about its cluster and itself, in every role."""

import time
from dataclasses import asdict, replace
from typing import Any

import msgspec

from leveret.cluster.faults import find_faults, find_reasons
from leveret.cluster.member import ClusterMember, NodeSettings
from leveret.config.settings import Settings, memory_high_bytes
from leveret.http.framework.node import ClusterNodeFacts, Listener, Machine, NodeReport
from leveret.runtime.machine import read_machine
from leveret.runtime.memory_alarm import machine_bytes


class ClusterFacts:
    """The facts about one node."""

    settings: Settings
    member: ClusterMember

    def __init__(self, cluster: NodeSettings) -> None:
        self.cluster = cluster
        self.bound: list[Listener] = []  # the addresses that the node listens on for clients
        self.leader = ""  # name of the node that leads; empty: none is known
        self._last_leader = ""  # the last node that was known to lead
        self._leader_changes = 0
        self._began_s = time.monotonic()

    def note_leader(self, leader: str) -> None:
        """Note which node leads now; empty: none is known."""
        self._leader_changes += leader not in ("", self._last_leader)
        self._last_leader = leader or self._last_leader
        self.leader = leader

    def facts(self) -> dict[str, Any]:
        """Return the cluster as this node sees it, as JSON."""
        status = self.member.status()
        return {
            **asdict(status),
            "leader_changes": self._leader_changes,
            "faults": [asdict(fault) for fault in find_faults(status)],
        }

    def reasons(self) -> list[str]:
        """Return why the cluster waits, or what it lacks, as sentences."""
        return find_reasons(self.member.status())

    def metrics(self) -> str:
        """Return the metrics of a node that follows, in Prometheus's text format."""
        from leveret.metrics.cluster import follower_text  # late: no start waits for it

        return follower_text(self.facts(), self._machine())

    def report(self) -> bytes:
        """Return the resources of this node for the leader, which `report_of` reads."""
        uptime_ms = int(1000 * (time.monotonic() - self._began_s))
        machine = self._machine()
        # The name of a directory may have bytes that are not UTF-8.
        shown = machine.data.encode("utf-8", "replace").decode()
        return msgspec.json.encode(NodeReport(uptime_ms, replace(machine, data=shown)))

    def _machine(self) -> Machine:
        """Return the resources of a node that follows. It holds no messages in memory."""
        return read_machine(
            self.settings.data,
            limit_bytes=memory_high_bytes(self.settings.memory_high, machine_bytes()),
            disk_limit_bytes=self.settings.disk_free_min,
        )

    def report_of(self, name: str) -> NodeReport | None:
        """Return the resources of another node; None if it has not reported them lately."""
        try:
            return msgspec.json.decode(self.member.reports.newest(name), type=NodeReport)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None  # no report, or one of another version

    def nodes(self) -> list[ClusterNodeFacts]:
        """Return all nodes of the cluster, by name."""
        found = [
            ClusterNodeFacts(
                member.name,
                is_leader=member.role == "leader",
                is_voter=member.role != "non-voter",
                is_running=member.is_connected,
                last_index=member.match or 0,
            )
            for member in self.member.status().members
        ]
        return sorted(found, key=lambda one: one.name)

    def raft_indexes(self) -> tuple[int, int]:
        """Return the term, and the last committed block."""
        raft = self.member.status().raft
        return (raft.term, raft.commit) if raft is not None else (0, 0)

    def missing_nodes(self) -> list[str]:
        """Return listed nodes that are not in the cluster yet."""
        return sorted(set(self.cluster.peers).difference(one.name for one in self.nodes()))
