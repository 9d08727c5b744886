"""Bugs planted into Raft, each found by a simulation or a trace.

Each edit is short and stands for a likely mistake. A bug names the test that must find it: a
schedule of the simulator and the rules that it may break, or a trace.
"""

from dataclasses import dataclass
from typing import Final

MILD: Final = "mild"
HARSH: Final = "harsh"
ROTTEN: Final = "rotten"
SCHEDULES: Final = (MILD, HARSH, ROTTEN)
SEEDS_MAX: Final = 40  # of a schedule, before a bug counts as missed


@dataclass(frozen=True)
class Bug:
    """One edit of one file, and the test that must find it."""

    name: str
    file: str  # below src/leveret/cluster/raft
    text: str  # occurs exactly once in the file
    instead: str
    catcher: str  # a schedule, or the name of a trace
    rules: tuple[str, ...] = ()  # rules of the checker, any of which may find it


BUGS: Final = (
    # What is on disk
    Bug(
        "vote sent before it is synced",
        "election.py",
        "        reply.context = REFUSED\n    state.send_synced(reply, 0)\n",
        "        reply.context = REFUSED\n    state.send(reply)\n",
        MILD,
        ("durable term", "durable vote"),
    ),
    Bug(
        "votes asked for before the own vote is synced",
        "election.py",
        "        state.send_synced(message, 0)\n",
        "        state.send(message)\n",
        MILD,
        ("durable term", "durable vote", "assertion"),
    ),
    Bug(
        "vote forgotten by a restart",
        "state.py",
        "        self.hard = stored.hard.copy()\n",
        "        self.hard = stored.hard.copy()\n        self.hard.vote = NOBODY\n",
        "vote_lost_on_restart",
    ),
    Bug(
        "blocks acknowledged before they are synced",
        "replication.py",
        "    state.send_synced(reply, index)\n",
        "    state.send(reply)\n",
        MILD,
        ("durable blocks", "durable term"),
    ),
    Bug(
        "blocks acknowledged before the term is synced",
        "state.py",
        "if self.hard.equals(self.synced_hard) and index <= self.log.synced_index:",
        "if index <= self.log.synced_index:",
        MILD,
        ("durable term", "durable vote"),
    ),
    Bug(
        "leader counts itself before its sync",
        "core.py",
        "own.on_match(self.log.synced_index)",
        "own.on_match(self.log.last_index)",
        MILD,
        ("durable majority",),
    ),
    Bug(
        "blocks that the host will cut off believed to be synced",
        "log.py",
        "        if self.cut_from and index >= self.cut_from:\n            return\n",
        "",
        "cut_and_back",
    ),
    # Elections
    Bug(
        "votes twice in a term",
        "election.py",
        "(state.vote == NOBODY and state.leader == NOBODY)",
        "state.term > 0",
        HARSH,
        ("votes once", "election safety", "assertion"),
    ),
    Bug(
        "vote ignores how fresh the log is",
        "log.py",
        "return term > last_term or (term == last_term and index >= self.last_index)",
        "return True",
        HARSH,
        ("leader completeness", "state machine safety", "cut", "assertion"),
    ),
    Bug(
        "freshness of a log judged by its length",
        "log.py",
        "return term > last_term or (term == last_term and index >= self.last_index)",
        "return index >= self.last_index",
        "fresh_log",
    ),
    Bug(
        "half of the voters taken for a majority",
        "members.py",
        "return len(self.voters) // 2 + 1",
        "return (len(self.voters) + 1) // 2",
        HARSH,
        ("election safety", "leader completeness", "state machine safety", "cut", "assertion"),
    ),
    Bug(
        "own vote counted twice",
        "election.py",
        "    count: i64 = 0\n    for node in state.log.members().voters:\n        if node in",
        "    count: i64 = int(answer)\n    for node in state.log.members().voters:\n"
        "        if node in",
        HARSH,
        ("election safety", "leader completeness", "state machine safety", "cut", "assertion"),
    ),
    Bug(
        "member counted twice",
        "replication.py",
        "        matches.append(0 if progress is None else int(progress.match))\n",
        "        matches.append(0 if progress is None else int(progress.match))\n"
        "        if node == state.node:\n            matches[0] = max(matches[0], matches[-1])\n",
        MILD,
        ("durable majority",),
    ),
    Bug(
        "pre-vote granted though the leader is heard",
        "election.py",
        "is_free = state.hard.may_vote and not state.is_in_lease() and state.role != LEADER",
        "is_free = state.hard.may_vote and state.role != LEADER",
        "link_lost",
    ),
    Bug(
        "lost link to the leader ignored",
        "election.py",
        "    wait = 1 + state.rng.below(state.config.link_lost_ticks)\n",
        "    wait = state.timeout\n",
        "link_lost",
    ),
    # Blocks
    Bug(
        "terms not compared",
        "log.py",
        "        return self.terms.of(index) == term\n",
        "        return True\n",
        HARSH,
        ("log matching", "state machine safety", "leader completeness", "assertion"),
    ),
    Bug(
        "log cut without conflict",
        "log.py",
        "while at < len(blocks) and self.matches(blocks[at].index, blocks[at].term):",
        "while at < len(blocks) and blocks[at].index <= matched:",
        HARSH,
        ("cut", "durable blocks", "durable majority", "leader completeness", "assertion"),
    ),
    Bug(
        "cut too short",
        "log.py",
        "            self.cut_from = first if self.cut_from == 0 else min(self.cut_from, first)\n",
        "            self.cut_from = first + 1\n",
        MILD,
        ("assertion", "log matching"),
    ),
    Bug(
        "cut too long",
        "log.py",
        "            self.cut_from = first if self.cut_from == 0 else min(self.cut_from, first)\n",
        "            self.cut_from = first - 1\n",
        MILD,
        ("cut", "assertion"),
    ),
    Bug(
        "cut not handed to the host",
        "core.py",
        "        ready.cut_from = log.cut_from\n",
        "",
        MILD,
        ("assertion",),
    ),
    Bug(
        "terms of blocks that were cut off kept",
        "log.py",
        "        self.terms.cut(first)\n",
        "        self.terms.cut(first + 1)\n",
        HARSH,
        ("assertion", "log matching", "a leader", "progress", "catch-up"),
    ),
    Bug(
        "blocks of an older term committed by count",
        "replication.py",
        "if index <= state.commit or state.log.term(index) != state.term:",
        "if index <= state.commit:",
        "figure_8",
    ),
    Bug(
        "acknowledgement of an older term counted",
        "core.py",
        "        if message.term < self.term:\n",
        "        if message.term < self.term and message.kind != APPEND_REPLY:\n",
        "late_ack",
    ),
    Bug(
        "one voter less taken for a majority",
        "replication.py",
        "    return matches[len(matches) - state.log.members().quorum()]\n",
        "    at = len(matches) - state.log.members().quorum() + 1\n"
        "    return matches[min(at, len(matches) - 1)]\n",
        MILD,
        ("durable majority",),
    ),
    Bug(
        "non-voters counted",
        "replication.py",
        "for node in state.log.members().voters:",
        "for node in state.log.members().everyone():",
        MILD,
        ("durable majority",),
    ),
    Bug(
        "committed beyond what was compared",
        "replication.py",
        "state.commit_to(min(message.commit, last))",
        "state.commit_to(min(message.commit, log.last_index))",
        "commit_bound",
    ),
    Bug(
        "commit of a heartbeat believed beyond what was compared",
        "replication.py",
        "    state.commit_to(min(message.commit, state.matched))\n",
        "    state.commit_to(message.commit)\n",
        HARSH,
        ("assertion", "state machine safety"),
    ),
    Bug(
        "uncommitted blocks dropped from memory",
        "replication.py",
        "    safe = min(state.commit, log.synced_index)\n",
        "    safe = log.last_index\n",
        MILD,
        ("assertion",),
    ),
    # Catch-up
    Bug(
        "catch-up with a gap",
        "replication.py",
        "        _send_blocks(state, request.node, progress, blocks)\n    send_appends",
        "        _send_blocks(state, request.node, progress, blocks[1:] or blocks)\n"
        "    send_appends",
        MILD,
        ("log matching", "state machine safety", "assertion"),
    ),
    Bug(
        "blocks that are not in files any more sent from files",
        "replication.py",
        "    if progress.next <= log.base_index:\n",
        "    if progress.next < log.base_index:\n",
        HARSH,
        ("assertion",),
    ),
    Bug(
        "copy taken though the log has more",
        "core.py",
        "        return self.needs_copy or not self.log.matches(index, term)\n",
        "        return True\n",
        "copy",
    ),
    Bug(
        "follower forgotten after its copy",
        "catch_up.py",
        "    progress.to_probe(index + 1, state.ticks)\n",
        "",
        MILD,
        ("catch-up",),
    ),
    # Members that have lost blocks
    Bug(
        "member that has lost blocks votes",
        "election.py",
        "    if is_free and is_fresh and state.hard.may_vote:\n",
        "    if is_free and is_fresh:\n",
        HARSH,
        ("kept promise", "leader completeness", "cut", "state machine safety"),
    ),
    Bug(
        "loss of blocks does not end the right to vote",
        "stored.py",
        "        self.may_vote = False\n",
        "        self.may_vote = True\n",
        ROTTEN,
        ("kept promise", "leader completeness", "assertion"),
    ),
    Bug(
        "member votes again when it has what is committed, not all that it may have acknowledged",
        "replication.py",
        "        hard.promised_index = min(hard.promised_index, message.index)\n",
        "        hard.promised_index = min(hard.promised_index, message.commit)\n",
        ROTTEN,
        ("kept promise", "leader completeness", "cut", "state machine safety"),
    ),
    Bug(
        "heartbeat from before the loss believed",
        "replication.py",
        "    if not hard.may_vote and message.context == hard.losses:\n",
        "    if not hard.may_vote:\n",
        "old_promise",
    ),
    Bug(
        "acknowledgement from before the loss counted",
        "replication.py",
        "    if progress is None or message.context < progress.losses:\n",
        "    if progress is None:\n",
        "old_promise",
    ),
    Bug(
        "what was acknowledged before the loss kept",
        "progress.py",
        "        self.match = 0\n        self.commit_sent = 0\n",
        "        self.commit_sent = 0\n",
        "old_promise",
    ),
    # Hung disks and hand-over
    Bug(
        "heartbeats leave while the disk hangs",
        "core.py",
        "        if self.is_holding():\n            return\n",
        "",
        MILD,
        ("hung disk",),
    ),
    Bug(
        "leader stays though its disk hangs",
        "state.py",
        "        return self.sync_ticks >= self.config.election_ticks\n",
        "        return False\n",
        MILD,
        ("hung disk",),
    ),
    Bug(
        "hand-over before the successor has everything",
        "replication.py",
        "if progress is not None and progress.match == last and state.commit == last:",
        "if progress is not None:",
        MILD,
        ("hand-over",),
    ),
    Bug(
        "hand-over never given up",
        "core.py",
        "                self.transfer_target = NOBODY\n",
        "",
        "transfer",
    ),
    # Members
    Bug(
        "two changes of the members at once",
        "membership.py",
        "if state.log.members_index() > state.commit:",
        "if state.log.members_index() > state.log.last_index:",
        "change_overlap",
    ),
    Bug(
        "change of the members before anything of the term is committed",
        "membership.py",
        '    if not state.has_committed_own_term():\n        raise BusyError("nothing of this '
        "leader's term is committed yet\")\n    if state.log",
        "    if state.log",
        "change_too_early",
    ),
    Bug(
        "members not taken back with their block",
        "log.py",
        "while len(self._members) > 1 and self._members_from[-1] >= first:",
        "while len(self._members) > 1 and self._members_from[-1] > first + 99:",
        "change_taken_back",
    ),
    Bug(
        "a node that is gone gets a vote",
        "membership.py",
        "    if not state.is_active(progress):\n        raise",
        "    if progress.match < 0:\n        raise",
        "promote_dead",
    ),
    Bug(
        "a node that is no voter, but needed, asks for no votes",
        "state.py",
        " or self.ticks < self.wanted_until",
        "",
        "non_voter_needed",
    ),
)
