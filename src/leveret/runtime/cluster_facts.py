"""Facts that a node reports about its cluster and itself, in every role."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import msgspec

from leveret import __version__
from leveret.clock import Clock
from leveret.cluster.errors import ClusterError, LinkRefusedError
from leveret.cluster.faults import (
    NOTE,
    OK,
    NodeCondition,
    count_spare,
    find_faults,
    find_reasons,
    find_state,
    is_refusal,
)
from leveret.cluster.handshake import NOT_LEADER
from leveret.cluster.member import ClusterMember, NodeSettings
from leveret.cluster.status import ClusterStatus
from leveret.config.settings import Settings, memory_high_bytes
from leveret.decode_errors import DECODE_ERRORS
from leveret.errors import public_reason
from leveret.http.framework.node import ClusterNodeFacts, Listener, Machine, NodeReport
from leveret.http.management.nodes import LOW_ON_DISK, LOW_ON_MEMORY, has_disk_alarm
from leveret.runtime.cluster_logs import FollowingLog, LeadingLog
from leveret.runtime.machine import read_machine
from leveret.runtime.memory_alarm import machine_bytes
from leveret.runtime.node import Node
from leveret.runtime.relays import Relayed
from leveret.runtime.sync_watch import SyncedLog, SyncWatch

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0  # between two looks for faults; a fault that passes sooner is not logged
# A node takes the lead from one with a short disk if it has so many times the space of its limit.
ROOM_FACTOR: Final = 2
RELAY_FAULT_S: Final = 30.0  # then a relay that was not opened counts no more
HAND_OVER_PAUSE_S: Final = 60.0  # between two such hand-overs, because the first may have failed


class ClusterFacts:
    """The facts about one node."""

    member: ClusterMember
    node: Node | None
    _clock: Clock
    _following: FollowingLog | None
    _leading: LeadingLog | None

    def __init__(self, settings: Settings, cluster: NodeSettings) -> None:
        self.settings = settings
        self.cluster = cluster
        self.bound: list[Listener] = []  # the addresses that the node listens on for clients
        self.leader = ""  # name of the node that leads; empty: none is known
        self._last_leader = ""  # the last node that was known to lead
        self._leader_changes = 0
        self._began_s = time.monotonic()
        self.count_clients: Callable[[], int] = int  # AMQP connections that this node relays
        self.disk_fault = ""  # why the log of a node that follows cannot be written now
        self._relay_fault = ""  # why the last relay to the leader was not opened
        self._relay_fault_s = 0.0
        self.certificates: Callable[[], list[tuple[str, int]]] = list  # each with its end
        self.open_secret_file = ""  # the secret file, if other users of the machine may read it
        # Faults at the last call of `log_faults`, and those that are logged: node and advice
        self._last_faults: set[tuple[str, str]] = set()
        self._logged_faults: set[tuple[str, str]] = set()
        self._watching: asyncio.TimerHandle | None = None
        self._sync_watch = SyncWatch(str(settings.data), self._log_of_disk)
        self._was_disk_short = False  # at the last look, while this node led
        self._handing_over: asyncio.Task[None] | None = None
        self._handed_over_s = -HAND_OVER_PAUSE_S

    def time_ahead_ms(self) -> int:
        """Return by how much the time of a broker that leads is ahead of its machine's."""
        return self._clock.ahead_ms() if self.leader == self.cluster.name else 0

    def alarms(self) -> Sequence[str]:
        """Return why publishers wait: the resources that this node is low on while it leads."""
        return ()

    def note_leader(self, leader: str) -> None:
        """Note which node leads now; empty: none is known."""
        self._leader_changes += leader not in ("", self._last_leader)
        self._last_leader = leader or self._last_leader
        self.leader = leader
        self._relay_fault = ""

    def note_relay(self, relay: Relayed) -> Relayed:
        """Note that a relay to the leader was opened; return it."""
        self._relay_fault = ""
        return relay

    def note_relay_fault(self, fault: ClusterError) -> None:
        """Note why a relay was not opened. A leader that does not serve clients yet is no fault."""
        if not isinstance(fault, LinkRefusedError) or fault.code != NOT_LEADER:
            self._relay_fault = str(fault)
            self._relay_fault_s = time.monotonic()

    def relay_fault(self) -> str:
        """Return why the leader is not reached for clients; empty if none has found that lately."""
        is_old = time.monotonic() - self._relay_fault_s > RELAY_FAULT_S
        return "" if is_old else self._relay_fault

    def slow_sync_s(self) -> float:
        """Return the time of a sync of this node while its disk is slow; 0 if it is not."""
        return self._sync_watch.slow_sync_s

    def _log_of_disk(self) -> SyncedLog | None:
        """Return the log that is written now; None while this node changes its role."""
        if self._following is not None:
            return self._following.log
        return self.node.replicated_log() if self.node is not None and self._leading else None

    def note_full(self, fault: OSError) -> None:
        """Note that the disk of a node that follows is full."""
        self.disk_fault = public_reason(fault)
        log.error("the log cannot be written: %s: free space on this disk", self.disk_fault)

    def note_room(self) -> None:
        """Note that the disk is not full any more."""
        self.disk_fault = ""
        log.warning("the log can be written again")

    def facts(self) -> dict[str, Any]:
        """Return the cluster as this node sees it, as JSON."""
        status = self._status()
        conditions = self._conditions()
        faults = find_faults(status, conditions)
        return {
            **asdict(status),
            "voters_spare": count_spare(status, conditions),
            "leader_changes": self._leader_changes,
            "state": find_state(faults),
            "faults": [asdict(fault) for fault in faults],
        }

    def state(self) -> str:
        """Return ok, degraded or stopped, as this node sees the cluster, or as its leader does."""
        own = find_state(find_faults(self._status(), self._conditions()))
        if own != OK or self.leader in ("", self.cluster.name):
            return own
        return self.member.reports.told_state(self.leader) or own

    def reasons(self) -> list[str]:
        """Return why the cluster waits, or what it lacks, as sentences."""
        return find_reasons(self._status(), self._conditions())

    def _status(self) -> ClusterStatus:
        """Return the cluster as this node sees it. A sync that waits for space is not late."""
        status = self.member.status()
        if self.disk_fault and status.raft is not None:
            return replace(status, raft=replace(status.raft, is_disk_late=False))
        return status

    def _conditions(self) -> list[NodeCondition]:
        """Return the condition of this node, then of all others that have reported lately."""
        return [self._own_condition(), *self._other_conditions()]

    def _other_conditions(self) -> list[NodeCondition]:
        """Return the conditions that the leader knows. Another node may have old reports."""
        if self.leader != self.cluster.name:
            return []
        found = [self._condition_of(one.name) for one in self.nodes()]
        return [one for one in found if one is not None]

    def _own_condition(self) -> NodeCondition:
        return NodeCondition(
            self.cluster.name,
            __version__,
            disk_fault=self.disk_fault,
            relay_fault=self.relay_fault(),
            time_ahead_ms=self.time_ahead_ms(),
            open_secret_file=self.open_secret_file,
            expired_certificate=self._expired_certificate(),
            slow_sync_s=self.slow_sync_s(),
            data=str(self.settings.data),
            leads=self.leader == self.cluster.name,
            is_disk_short=LOW_ON_DISK in self.alarms(),
            is_memory_short=LOW_ON_MEMORY in self.alarms(),
        )

    def _expired_certificate(self) -> str:
        """Return the file of a certificate that has expired; empty if there is none."""
        now_ms = _wall_ms()
        return next((path for path, end_ms in self.certificates() if 0 < end_ms <= now_ms), "")

    def _condition_of(self, name: str) -> NodeCondition | None:
        report = None if name == self.cluster.name else self.report_of(name)
        if report is None:
            return None
        ahead_ms = report.now_ms + report.age_ms - _wall_ms()
        return NodeCondition(
            name,
            report.version,
            clock_ahead_ms=ahead_ms if report.now_ms else 0,
            disk_fault=report.disk_fault,
            relay_fault=report.relay_fault,
            open_secret_file=report.open_secret_file,
            expired_certificate=report.expired_certificate,
            slow_sync_s=report.slow_sync_s,
            data=report.machine.data,
            is_disk_short=has_disk_alarm(report),
        )

    def watch(self) -> None:
        """Look for faults now and every `LOOK_S`. Log them, and leave the lead by a short disk."""
        if self._watching is None:
            self._sync_watch.start()
        if self._following is not None:
            self._following.log.check_directory()
        self.log_faults()
        was_short, self._was_disk_short = self._was_disk_short, LOW_ON_DISK in self.alarms()
        if was_short and self._was_disk_short:
            self._leave_lead()
        self._watching = asyncio.get_running_loop().call_later(LOOK_S, self.watch)

    def end_watch(self) -> None:
        """Look for faults no more."""
        self._sync_watch.stop()
        if self._watching is not None:
            self._watching.cancel()
        if self._handing_over is not None:
            self._handing_over.cancel()

    def _leave_lead(self) -> None:
        """Let a node lead whose disk has room. Publishers wait for the disk of this one."""
        loop = asyncio.get_running_loop()
        target = self._find_roomier()
        if target and loop.time() - self._handed_over_s >= HAND_OVER_PAUSE_S:
            self._handed_over_s = loop.time()
            log.warning(
                "the disk of this node is nearly full, so it hands the lead over to node %s: free"
                " space on this disk",
                target,
            )
            self._handing_over = loop.create_task(self._hand_over_to(target))

    def _find_roomier(self) -> str:
        """Return the node with most free space that may lead; empty if none has enough."""
        best, best_bytes = "", -1
        for one in self.nodes():
            report = self.report_of(one.name) if one.name != self.cluster.name else None
            if report is None or report.disk_fault or one.is_drained:
                continue
            free_bytes = report.machine.disk_free_bytes
            has_room = free_bytes >= ROOM_FACTOR * report.machine.disk_limit_bytes
            if has_room and one.is_running and one.is_voter and free_bytes > best_bytes:
                best, best_bytes = one.name, free_bytes
        return best

    async def _hand_over_to(self, name: str) -> None:
        try:
            await self.member.lead(name)
        except ClusterError as reason:
            log.warning("the lead was not handed over to node %s: %s", name, reason)

    def log_faults(self) -> None:
        """Log each fault that has lasted since the last call, once until it is gone.

        Left out are the refusals of links and the faults of this node's own disk and files, which
        are logged where they are found.
        """
        status = self._status()
        own = NodeCondition(
            self.cluster.name,
            __version__,
            relay_fault=self.relay_fault(),
            time_ahead_ms=self.time_ahead_ms(),
            expired_certificate=self._expired_certificate(),
            leads=self.leader == self.cluster.name,
        )
        faults = {
            (fault.node, fault.advice): fault
            for fault in find_faults(status, [own, *self._other_conditions()])
            if not is_refusal(fault, status)
        }
        lasting = self._last_faults.intersection(faults)
        for key, fault in faults.items():
            if key in lasting and key not in self._logged_faults:
                level = logging.INFO if fault.severity == NOTE else logging.WARNING
                log.log(level, "%s: %s", fault.fault, fault.advice)
        self._logged_faults = lasting
        self._last_faults = set(faults)

    def metrics(self) -> str:
        """Return the metrics of a node that follows, in Prometheus's text format."""
        from leveret.metrics.cluster import follower_text  # late: no start waits for it

        synced_log = self._log_of_disk()
        syncs = synced_log.sync_times if synced_log is not None else None
        return follower_text(self.facts(), self._machine(), syncs, self.slow_sync_s())

    def report(self) -> bytes:
        """Return the resources of this node for the leader, which `report_of` reads."""
        uptime_ms = int(1000 * (time.monotonic() - self._began_s))
        machine = self._machine()
        # The name of a directory may have bytes that are not UTF-8.
        shown = machine.data.encode("utf-8", "replace").decode()
        report = NodeReport(
            uptime_ms,
            replace(machine, data=shown),
            version=__version__,
            now_ms=_wall_ms(),
            clients=self.count_clients(),
            disk_fault=self.disk_fault,
            relay_fault=self.relay_fault(),
            open_secret_file=self.open_secret_file,
            expired_certificate=self._expired_certificate(),
            slow_sync_s=self.slow_sync_s(),
        )
        return msgspec.json.encode(report)

    def send_reports(self) -> None:
        """Report to the leader, and answer the reports of others while this node leads."""
        self.member.reports.make = self.report
        self.member.reports.find_state = self.state

    def is_disk_short(self) -> bool:
        """Return True if the disk of a node that follows is full, or nearly so."""
        machine = self._machine()
        return bool(self.disk_fault) or machine.disk_free_bytes < machine.disk_limit_bytes

    def _machine(self) -> Machine:
        """Return the resources of a node that follows. It holds no messages in memory."""
        return read_machine(
            self.settings.data,
            limit_bytes=memory_high_bytes(self.settings.memory_high, machine_bytes()),
            disk_limit_bytes=self.settings.disk_free_min,
        )

    def report_of(self, name: str) -> NodeReport | None:
        """Return the resources of another node; None if it has not reported them lately."""
        reports = self.member.reports
        try:
            report = msgspec.json.decode(reports.newest(name), type=NodeReport)
        except DECODE_ERRORS:
            return None  # no report, or one of another version
        return replace(report, age_ms=int(1000 * reports.age_s(name)))

    def nodes(self) -> list[ClusterNodeFacts]:
        """Return all nodes of the cluster, by name."""
        found = [
            ClusterNodeFacts(
                member.name,
                is_leader=member.role == "leader",
                is_voter=member.role != "non-voter",
                is_running=member.is_connected,
                last_index=member.match or 0,
                is_drained=bool(member.is_drained),
                can_write=not self._disk_fault_of(member.name),
            )
            for member in self.member.status().members
        ]
        return sorted(found, key=lambda one: one.name)

    def _disk_fault_of(self, name: str) -> str:
        """Return why a node cannot write its log, as far as it is known here."""
        if name == self.cluster.name:
            return self.disk_fault
        report = self.report_of(name)
        return "" if report is None else report.disk_fault

    def raft_indexes(self) -> tuple[int, int]:
        """Return the term, and the last committed block."""
        raft = self.member.status().raft
        return (raft.term, raft.commit) if raft is not None else (0, 0)

    def missing_nodes(self) -> list[str]:
        """Return listed nodes that are not in the cluster yet."""
        return sorted(set(self.cluster.peers).difference(one.name for one in self.nodes()))


def _wall_ms() -> int:
    """Return the time of the machine. The clock of a leader may differ from it."""
    return Clock().now_ms()
