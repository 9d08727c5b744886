"""The text of `leveret ctl cluster status`, and its exit code.

A node that follows knows who is reached, but only the leader knows how far the others are behind.
So the view of the leader is shown if it answers, with the faults that either of them sees.
"""

from collections.abc import Iterator
from typing import Any, Final

from leveret.cli.shared.management import ManagementClient, NoAnswerError

HEALTHY: Final = "healthy"
EXIT_CODES: Final = {HEALTHY: 0, "degraded": 3, "stopped": 4}

_MIB: Final = 1024 * 1024
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

Facts = dict[str, Any]


def ask(broker: ManagementClient) -> Facts:
    """Return the facts of the node that is asked; in a cluster those to show (`combine`)."""
    asked: Facts = broker.get("/api/cluster")
    return asked if is_alone(asked) else combine(asked, _leader_view(broker, asked))


def _leader_view(broker: ManagementClient, asked: Facts) -> Facts | None:
    """Return the facts that the leader has; None if it does not answer or was asked already."""
    leader = (asked.get("raft") or {}).get("leader")
    if not leader or leader == asked["name"]:
        return None
    try:
        found: Facts = broker.get("/api/cluster/leader")
    except NoAnswerError:
        return None
    return found


def combine(asked: Facts, leader: Facts | None) -> Facts:
    """Return the facts to show: those of the leader if it answered, with the faults of both."""
    view = asked if leader is None else leader
    rows: list[Facts] = []
    known: set[tuple[str, str]] = set()
    for fault in [*view.get("faults", []), *asked.get("faults", [])]:
        # Its figures may differ, or the node in its advice from which another one is not reached.
        names = {(fault["node"], fault["advice"]), (fault["node"], fault["fault"])}
        if known.isdisjoint(names):
            rows.append(fault)
        known |= names
    rows.sort(key=lambda fault: fault["severity"] != "stopped")
    return {**view, "asked": asked["name"], "faults": rows, "state": _state(rows)}


def _state(faults: list[Facts]) -> str:
    found = {fault["severity"] for fault in faults}
    return next((state for state in ("stopped", "degraded") if state in found), HEALTHY)


def is_alone(facts: Facts) -> bool:
    """Return True if a node runs without a cluster."""
    return not facts["cluster"] and not facts.get("waiting_for")


def describe(facts: Facts) -> Iterator[str]:
    """Yield the lines above the table of members."""
    raft = facts.get("raft") or {}
    yield f"cluster   {facts['cluster'] or 'none yet'}, asked at node {facts['asked']}"
    since = f" for {format_duration(raft['leader_s'])}" if raft else ""
    yield f"leader    {raft.get('leader') or 'none'}{since}"
    if facts["members"]:
        reached, voters, needed = (
            facts[name] for name in ("voters_reached", "voters", "voters_needed")
        )
        yield f"majority  {reached} of {voters} voters reached, {needed} needed: {_spare(facts)}"


def _spare(facts: Facts) -> str:
    spare = facts["voters_spare"]
    if spare < 0:
        return "clients are not served"
    if spare == 0:
        return "losing one more node stops the cluster"
    return "1 more node may be lost" if spare == 1 else f"{spare} more nodes may be lost"


def summary(facts: Facts) -> Iterator[str]:
    """Yield the state of a cluster as one line, then what to do about each fault."""
    leader = (facts.get("raft") or {}).get("leader")
    parts = [f"node {leader} leads" if leader else "no node leads"]
    if facts["members"]:
        away = [each["name"] for each in facts["members"] if each["unreached_s"] is not None]
        parts += [_who_answers(away, len(facts["members"])), _spare(facts)]
    state = "ok" if facts["state"] == HEALTHY else facts["state"]  # as in GET /api/health
    yield f"{state}: {', '.join(parts)}"
    for fault in facts["faults"]:
        if fault["severity"] in EXIT_CODES:  # a note asks for no repair
            yield f"{fault['fault']}: {fault['advice']}"


def _who_answers(away: list[str], count: int) -> str:
    if not away:
        return f"all {count} nodes answer" if count > 1 else "it is the only node"
    verb = "does" if len(away) == 1 else "do"
    return f"{'node' if len(away) == 1 else 'the nodes'} {', '.join(away)} {verb} not answer"


def rows(facts: Facts) -> list[dict[str, str]]:
    """Return the table of members."""
    return [
        {
            "node": member["name"],
            "role": member["role"] + (", drained" if member["is_drained"] else ""),
            "address": member["address"],
            "reached": _reached(member),
            "behind": _behind(member),
        }
        for member in facts["members"]
    ]


def _reached(member: Facts) -> str:
    if member["unreached_s"] is None:
        return "yes"
    return f"no, for {format_duration(member['unreached_s'])}"


def _behind(member: Facts) -> str:
    if member["role"] == "leader":
        return ""
    if member["lag_blocks"] is None or member["match"] == 0:
        return "unknown"  # only the leader knows, and a new one has to hear from the node first
    if member["progress"] == "copy":
        return "copies the directory"
    if not member["lag_blocks"]:
        return "nothing"
    blocks = "1 block" if member["lag_blocks"] == 1 else f"{member['lag_blocks']} blocks"
    if member["lag_bytes"] is None:  # they are in files of the leader only
        return blocks
    return f"{blocks}, {member['lag_bytes'] / _MIB:.1f} MiB"


def verdict(facts: Facts) -> Iterator[str]:
    """Yield the lines below the table: each fault with what to do, and the state."""
    for fault in facts["faults"]:
        yield f"{fault['severity']}: {fault['fault']}: {fault['advice']}"
    yield f"the cluster is {facts['state']}"


def format_duration(seconds: float) -> str:
    """Format a time by its two largest units."""
    rest = int(seconds)
    words: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or (words and len(words) < 2):
            words.append(f"{count} {unit}")
        if len(words) == 2:
            break
    return " ".join(words) or "0 s"
