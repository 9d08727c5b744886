"""Find the faults of a cluster, as sentences for its operator.

`find_faults` looks at the facts that one node has (`leveret.cluster.status`), and at the conditions
that nodes report about themselves. It returns each fault with one sentence that says what to do.
The command `leveret ctl cluster status` and the page show the same sentences. This module is pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_high, median_low
from typing import Final

from leveret.clock import duration_text
from leveret.cluster.status import ClusterStatus, MemberStatus

OK: Final = "ok"  # nothing has to be repaired
STOPPED: Final = "stopped"  # clients are not served
DEGRADED: Final = "degraded"  # clients are served, and something has to be repaired
NOTE: Final = "note"  # nothing is wrong; the state is not the usual one

LAG_BYTES_MIN: Final = 16 * 1024 * 1024  # a follower that lacks less is not reported
LAG_BLOCKS_MIN: Final = 1000  # likewise, if it reads blocks from the leader's files
CLOCK_MS_MAX: Final = 30_000  # clocks that differ by less are not reported
_DISK_ADVICE: Final = "look for other programs that use this disk, and for faults of it"


@dataclass(frozen=True)
class Fault:
    """One fault, or one note."""

    severity: str
    node: str  # the node that it concerns; empty: the whole cluster
    fault: str
    advice: str


@dataclass(frozen=True)
class NodeCondition:
    """Facts that a node knows about itself, and the others do not."""

    name: str
    version: str  # of the program; empty: one that does not report it
    clock_ahead_ms: int = 0  # of its clock, compared with the node that answers
    time_ahead_ms: int = 0  # of its broker, if it leads, compared with its clock
    disk_fault: str = ""  # why its log cannot be written now; empty: it can
    relay_fault: str = ""  # why it does not reach the leader for its clients; empty: it does
    open_secret_file: str = ""  # its secret file, if other users of its machine may read it
    expired_certificate: str = ""  # the file of a certificate of it that has expired
    slow_sync_s: float = 0.0  # time of a sync while its disk is slow; 0: it is not
    data: str = ""  # its data directory
    leads: bool = False
    is_disk_short: bool = False  # less space is free than disk_free_min
    is_memory_short: bool = False  # messages hold more memory than memory_high


def find_faults(status: ClusterStatus, conditions: Sequence[NodeCondition] = ()) -> list[Fault]:
    """Return the faults of a cluster, the worst ones first.

    The first condition is that of the node that answers.
    """
    has_expired = bool(conditions) and bool(conditions[0].expired_certificate)
    found = [*_forming_faults(status), *_leadership_faults(status, has_expired=has_expired)]
    found += _disk_and_vote_faults(status)
    found += _absent_faults(status)
    for member in status.members:
        found += _member_faults(status, member)
    for condition in conditions:
        found += find_own_faults(condition, conditions[0])
    found += _full_disk_faults(status, conditions)
    found += _clock_faults(conditions)
    found += _slow_disk_faults(status, conditions)
    order = (STOPPED, DEGRADED, NOTE)
    return sorted(found, key=lambda fault: order.index(fault.severity))


def find_own_faults(node: NodeCondition, other: NodeCondition) -> Iterator[Fault]:
    """Yield the faults that a node reports. `other` is the node that answers."""
    name = node.name
    if node.disk_fault:
        yield Fault(
            DEGRADED,
            name,
            f"node {name} cannot write its log ({node.disk_fault}), so it confirms nothing",
            "free space on its disk; it goes on by itself, and nothing is lost",
        )
    if node.relay_fault:
        yield Fault(
            DEGRADED,
            name,
            f"clients of node {name} are not served ({node.relay_fault})",
            f"correct --cluster-peers of node {name}, or mend its way to the leader",
        )
    yield from _find_shortages(node)
    if node.expired_certificate:
        yield Fault(
            DEGRADED,
            name,
            f"the certificate {node.expired_certificate} of node {name} has expired, so clients "
            "and other nodes refuse it",
            "renew it; the node takes the new file by itself",
        )
    if node.open_secret_file:
        yield Fault(
            DEGRADED,
            name,
            # The log hides a word behind "secret:", so the path must not be the last word here.
            f"other users of the machine of node {name} may read the file {node.open_secret_file} "
            "with the secret of the cluster",
            "run `chmod 600` on this file, and change the secret if they are not trusted",
        )
    if node.version != other.version:
        version = f"version {node.version}" if node.version else "an older version"
        yield Fault(
            NOTE,
            name,
            f"node {name} runs {version}, and node {other.name} version {other.version}",
            "finish the upgrade: run the same version on all nodes",
        )


def _find_shortages(node: NodeCondition) -> Iterator[Fault]:
    name = node.name
    if node.is_disk_short and not node.disk_fault:
        what = f"the disk of node {name} has less free space than disk_free_min"
        if node.leads:
            what += ", and it leads, so publishers wait"
            advice = "free space on it; a node whose disk has twice this space takes the lead"
        else:
            advice = "free space on it, because publishers have to wait if this node leads"
        yield Fault(DEGRADED, name, what, advice)
    if node.is_memory_short:
        yield Fault(
            DEGRADED,
            name,
            f"node {name} leads and holds more messages in memory than memory_high allows, so "
            "publishers wait",
            "let consumers take messages, or give the nodes more memory",
        )


def _clock_faults(conditions: Sequence[NodeCondition]) -> Iterator[Fault]:
    """Yield a fault for each clock that differs from the clocks of most nodes.

    If there is no such majority, the clock of the node that answers is taken to be right.
    """
    if not conditions:
        return
    clocks = [node.clock_ahead_ms for node in conditions]
    right_ms = min(median_low(clocks), median_high(clocks), key=abs)
    if abs(right_ms) <= CLOCK_MS_MAX:
        right_ms, others = 0, f"the clock of node {conditions[0].name}"
    else:
        others = "the clocks of most nodes"
    for node in conditions:
        ahead_ms = node.clock_ahead_ms - right_ms
        if abs(ahead_ms) <= CLOCK_MS_MAX:
            continue
        way = "ahead of" if ahead_ms > 0 else "behind"
        until_then = (
            "or let another node lead (`leveret ctl cluster lead`)"
            if node.leads
            else f"and run `leveret ctl cluster drain {node.name}` until then, so that it does not"
            " lead"
        )
        yield Fault(
            DEGRADED,
            node.name,
            f"the clock of node {node.name} is {duration_text(abs(ahead_ms))} {way} {others}",
            f"correct it, {until_then}: the clock of the leader decides when messages expire",
        )
    # The time of the broker is right, and seems ahead, if the clock of the leader is behind.
    if right_ms <= CLOCK_MS_MAX:
        yield from _time_faults(conditions)


def _time_faults(conditions: Sequence[NodeCondition]) -> Iterator[Fault]:
    for node in conditions:
        if node.time_ahead_ms > CLOCK_MS_MAX:
            yield Fault(
                DEGRADED,
                node.name,
                f"the time of the broker is {duration_text(node.time_ahead_ms)} ahead of the clock "
                f"of node {node.name}, because the clock of a leader was ahead, or was set back",
                "wait: it runs at half speed until both agree. Meanwhile delays, expiries and "
                "leases take up to twice as long, and dates come early: tokens expire, and "
                "schedules and delayed jobs are due",
            )


def _slow_disk_faults(
    status: ClusterStatus, conditions: Sequence[NodeCondition]
) -> Iterator[Fault]:
    """Yield a fault for each slow disk. That of the leader delays everything."""
    slow = {one.name for one in conditions if one.slow_sync_s > 0}
    for node in conditions:
        if node.name not in slow:
            continue
        sync = f"a sync of {node.data}" if node.data else "a sync"
        what = (
            f"the disk of node {node.name} is slow: {sync} takes {node.slow_sync_s * 1000:.0f} ms"
        )
        advice = _DISK_ADVICE
        if not node.leads:
            advice += "; clients wait for it only if its node leads, or if another node is away"
            yield Fault(DEGRADED, node.name, what, advice)
            continue
        what += ", and it leads, so all confirms wait for it"
        other = _find_successor(status, slow)
        if other:
            advice = f"let node {other} lead with `leveret ctl cluster lead {other}`, then {advice}"
        yield Fault(DEGRADED, node.name, what, advice)


def _find_successor(status: ClusterStatus, slow: set[str]) -> str:
    """Return a node that may lead instead of the leader; empty if there is none."""
    for member in sorted(status.members, key=lambda one: one.name):
        may_lead = member.role == "follower" and member.is_connected and not member.is_drained
        if may_lead and member.name not in slow and not _is_far_behind(member):
            return member.name
    return ""


def _full_disk_faults(
    status: ClusterStatus, conditions: Sequence[NodeCondition]
) -> Iterator[Fault]:
    """Yield a fault if a node leads a majority that cannot write its log."""
    has_leader = status.raft is not None and bool(status.raft.leader)
    if has_leader and status.voters_spare >= 0 > count_spare(status, conditions):
        full = [node.name for node in conditions if node.disk_fault]
        yield Fault(
            STOPPED,
            "",
            f"no majority of the nodes can write its log, because of {_nodes(full)}, so nothing is "
            "confirmed",
            f"free space on the disk of {_nodes(full)}; the cluster goes on by itself, and nothing "
            "is lost",
        )


def find_state(faults: Sequence[Fault]) -> str:
    """Return OK, DEGRADED or STOPPED: the worst of the faults."""
    found = {fault.severity for fault in faults}
    return next((state for state in (STOPPED, DEGRADED) if state in found), OK)


def count_spare(status: ClusterStatus, conditions: Sequence[NodeCondition]) -> int:
    """Return how many more voters may be lost: a node that cannot write its log helps nobody."""
    full = {node.name for node in conditions if node.disk_fault}
    voters = [member for member in status.members if member.role != "non-voter"]
    return status.voters_spare - sum(one.is_connected and one.name in full for one in voters)


def find_reasons(status: ClusterStatus, conditions: Sequence[NodeCondition] = ()) -> list[str]:
    """Return one sentence for each fault that delays messages or needs a repair.

    Clients read them, also without a login. So they name no directory and no file.
    """
    conditions = [_without_paths(condition) for condition in conditions]
    faults = [fault for fault in find_faults(status, conditions) if fault.severity != NOTE]
    return [f"{fault.fault[0].upper()}{fault.fault[1:]}: {fault.advice}." for fault in faults]


def _without_paths(node: NodeCondition) -> NodeCondition:
    secret_file = "of --cluster-secret-file" if node.open_secret_file else ""
    certificate = "of --tls-cert or --tls-ca" if node.expired_certificate else ""
    return replace(node, data="", open_secret_file=secret_file, expired_certificate=certificate)


def _forming_faults(status: ClusterStatus) -> Iterator[Fault]:
    if status.waiting_for:
        yield Fault(
            STOPPED,
            status.name,
            f"node {status.name} is in no cluster yet: {status.waiting_for}",
            "start all nodes of --cluster-peers, and look at their logs",
        )
    for name, sentence in status.refusals.items():
        what, _, advice = sentence.partition(": ")
        yield Fault(DEGRADED, name, what, advice or f"look at the log of node {name}")


def is_refusal(fault: Fault, status: ClusterStatus) -> bool:
    """Return True if a fault is the refusal of a link."""
    return status.refusals.get(fault.node, "").startswith(fault.fault)


def _absent_faults(status: ClusterStatus) -> Iterator[Fault]:
    """Yield a fault for listed nodes that are no members: a note if there is a second node."""
    absent = status.absent
    if not absent:
        return
    what = f"{_nodes(absent)} of --cluster-peers did not join the cluster"
    advice = (
        f"start {_nodes(absent)}, and look at the log there; take a node that was removed for good "
        "out of --cluster-peers"
    )
    if len(status.members) == 1:
        what += f", so confirmed messages are on the disk of node {status.name} only"
        yield Fault(DEGRADED, "", what, advice)
    else:
        yield Fault(NOTE, "", what, advice)


def _leadership_faults(status: ClusterStatus, *, has_expired: bool) -> Iterator[Fault]:
    """Yield a fault if no node leads. `has_expired`: the certificate of this node."""
    raft = status.raft
    if raft is None:
        return
    is_cut_off = raft.role == "leader" and status.voters_spare < 0  # it soon ceases to lead
    if raft.leader and not is_cut_off:
        return
    away = sorted(member.name for member in status.members if not member.is_connected)
    refusing = [name for name in away if name in status.refusals]
    if status.voters_spare >= 0 and not away:
        advice = "wait a few seconds; if none leads then, look at the logs of all nodes"
    elif status.voters_spare >= 0:
        advice = (
            "wait a few seconds; if none leads then, run `leveret ctl cluster status` at the other "
            "nodes: if one of them leads, mend the network between it and this node, else look at "
            "the logs of all nodes"
        )
    elif has_expired:  # the others may be well, so they must not be given up
        advice = f"renew the certificate of node {status.name}, which has expired"
    elif refusing:
        advice = f"{_nodes(refusing)} can be reached, but a link is refused: mend that"
    else:
        advice = (
            f"start {_nodes(away)}, or mend the network; if they are lost for good, "
            "stop this node and run `leveret ctl cluster rescue --data DIR`"
        )
    what = "the leader is cut off" if is_cut_off else "no node leads"
    if away and status.voters_spare >= 0:
        what = f"node {status.name} knows no leader"
    yield Fault(
        STOPPED,
        "",
        f"{what}: {status.voters_reached} of {status.voters} voters are reached, and "
        f"{status.voters_needed} are needed",
        advice,
    )


def _nodes(names: Sequence[str]) -> str:
    """Return names as part of a sentence."""
    return f"node {names[0]}" if len(names) == 1 else f"the nodes {', '.join(names)}"


def _disk_and_vote_faults(status: ClusterStatus) -> Iterator[Fault]:
    raft = status.raft
    if raft is not None and raft.is_disk_late:
        yield Fault(
            DEGRADED,
            status.name,
            f"the disk of node {status.name} has not finished a sync for more than a second",
            _DISK_ADVICE,
        )
    if raft is not None and not raft.may_vote:
        yield Fault(
            DEGRADED,
            status.name,
            f"node {status.name} has lost blocks of its log and does not vote",
            "wait until it has copied them from the leader, and look at its log for the reason",
        )


def _member_faults(status: ClusterStatus, member: MemberStatus) -> Iterator[Fault]:
    name = member.name
    if not member.is_connected:
        if name in status.refusals:
            return  # that says more
        advice = (
            f"start it, or look at its log and at the network between it and node {status.name}"
        )
        if status.voters_spare >= 0 and status.raft is not None and status.raft.leader:
            advice += f"; if it is lost for good, run `leveret ctl cluster remove {name}`"
        yield Fault(DEGRADED, name, f"node {name} is not reached", advice)
        return
    if member.role == "non-voter":
        yield Fault(
            NOTE,
            name,
            f"node {name} is joining and does not vote yet",
            "wait until it has caught up",
        )
    elif member.progress == "copy":
        yield Fault(
            DEGRADED,
            name,
            f"node {name} was away for so long that it copies the whole directory of the leader",
            "wait until it has caught up",
        )
    elif _is_far_behind(member):
        yield Fault(
            DEGRADED,
            name,
            f"node {name} is far behind the leader",
            "look at its disk and its network if it does not catch up by itself",
        )
    if member.is_drained:
        yield Fault(
            NOTE,
            name,
            f"node {name} is drained, so it leads only if no other node can",
            f"run `leveret ctl cluster revive {name}` after the maintenance, or start it again",
        )


def _is_far_behind(member: MemberStatus) -> bool:
    if not member.match:  # a new leader has not heard from it yet
        return False
    if member.lag_bytes is None:
        return (member.lag_blocks or 0) >= LAG_BLOCKS_MIN
    return member.lag_bytes >= LAG_BYTES_MIN
