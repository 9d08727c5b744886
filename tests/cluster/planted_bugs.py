"""Bugs planted into Raft and the replicated queue, each found by a simulation or a trace.

Each edit is short and stands for a likely mistake. A bug names the test that must find it: a
schedule of the simulator and the rules that it may break, a trace, or the runs of the store against
its model.
"""

from dataclasses import dataclass
from typing import Final

MILD: Final = "mild"
HARSH: Final = "harsh"
STORAGE: Final = "storage"
SEEDS_MAX: Final = 60  # of a schedule, before a bug counts as missed


@dataclass(frozen=True)
class Bug:
    """One edit of one file, and the test that must find it."""

    name: str
    file: str  # below src/leveret/cluster
    text: str  # occurs exactly once in the file
    instead: str
    catcher: str  # a schedule, the store's runs, or the name of a trace
    rules: tuple[str, ...] = ()  # rules of the checker, any of which may find it


BUGS: Final = (
    # What is on disk
    Bug(
        "vote not written",
        "store/store.py",
        "            group.vote = ready.vote\n",
        "",
        MILD,
        ("assertion",),
    ),
    Bug(
        "vote forgotten by a restart",
        "store/loading.py",
        "    stored.vote = group.vote\n",
        "",
        "vote_lost_on_restart",
    ),
    Bug(
        "vote sent before it is synced",
        "raft/core.py",
        "ready.must_sync = is_vote or ready.snapshot",
        "ready.must_sync = ready.snapshot",
        MILD,
        ("durable term", "durable vote"),
    ),
    Bug(
        "entries acknowledged before they are synced",
        "raft/core.py",
        "is_vote or ready.snapshot is not None or bool(ready.entries)",
        "is_vote or ready.snapshot is not None",
        MILD,
        ("durable entries", "durable majority"),
    ),
    Bug(
        "leader counts itself before its sync",
        "raft/core.py",
        "own.on_match(self.log.stable)",
        "own.on_match(self.log.last_index())",
        "own_sync",
    ),
    # The store
    Bug(
        "file removed before what was moved out of it is synced",
        "store/store.py",
        "        block.removals = self._removable\n",
        "        block.removals = block.dead = space.dead(self._file)\n"
        "        for file in block.dead:\n"
        "            self._forget(file)\n",
        STORAGE,
    ),
    Bug(
        "end of a group not written",
        "store/store.py",
        "        write_head(self._writer, DELETE, number)\n",
        "",
        STORAGE,
    ),
    Bug(
        "file named before its head is synced",
        "store/files.py",
        "        opened.sync()\n        self._disk.rename",
        "        self._disk.rename",
        STORAGE,
    ),
    Bug(
        "name of a new file not synced",
        "store/files.py",
        "        self._disk.sync_folder()\n        self._open[block.file]",
        "        self._open[block.file]",
        STORAGE,
    ),
    Bug(
        "block not synced",
        "store/files.py",
        "                opened.sync()\n",
        "",
        STORAGE,
    ),
    Bug(
        "live entries not counted as live",
        "store/group.py",
        "            space.gain(file_of(kept_at[here]), kept_size[here])\n",
        "            space.gain(file_of(kept_at[here]), 0)\n",
        HARSH,
        ("assertion",),
    ),
    Bug(
        "snapshot left behind by compaction",
        "store/store.py",
        "if record.size and group.snapshot_at == scan.base + record.at:",
        "if record.size and group.snapshot_at == scan.base:",
        STORAGE,
    ),
    Bug(
        "file compacted while its last block is written",
        "store/store.py",
        "end = self._file if under_way is None else under_way.file",
        "end = self._file",
        STORAGE,
    ),
    Bug(
        "entries that were cut off come back",
        "store/index.py",
        "        group.cut(first, self.space)\n",
        "        first = group.last() + 1\n",
        STORAGE,
    ),
    Bug(
        "checkpoint without live entries",
        "store/checkpoint.py",
        "    write_u32(writer, len(group.kept))\n    for here in range(len(group.kept)):\n",
        "    write_u32(writer, 0)\n    for here in range(0):\n",
        HARSH,
        ("assertion",),
    ),
    Bug(
        "what a killed node has written is relied on, not synced",
        "store/files.py",
        "            opened.truncate(size)\n        opened.sync()\n",
        "            opened.truncate(size)\n",
        STORAGE,
    ),
    Bug(
        "name that a killed node has given is relied on, not synced",
        "store/files.py",
        "                self._disk.remove(name)\n        self._disk.sync_folder()\n",
        "                self._disk.remove(name)\n",
        STORAGE,
    ),
    # Elections
    Bug(
        "votes twice in a term",
        "raft/election.py",
        "(state.vote == NOBODY and state.leader == NOBODY)",
        "state.term > 0",
        HARSH,
        ("election safety", "assertion"),
    ),
    Bug(
        "vote ignores how fresh the log is",
        "raft/log.py",
        "return term > last_term or (term == last_term and index >= self.last_index())",
        "return True",
        HARSH,
        ("leader completeness", "state machine safety", "assertion"),
    ),
    # Entries
    Bug(
        "truncation without conflict",
        "raft/log.py",
        "while at < len(entries) and self.matches(entries[at].index, entries[at].term):",
        "while at < len(entries) and entries[at].index <= commit:",
        HARSH,
        ("durable entries", "durable majority", "leader completeness", "assertion"),
    ),
    Bug(
        "entries of an older term committed by count",
        "raft/replication.py",
        "if index <= state.commit or state.log.term(index) != state.term:",
        "if index <= state.commit:",
        "figure_8",
    ),
    Bug(
        "acknowledgement of an older term counted",
        "raft/core.py",
        "        if message.term < self.term:\n",
        "        if message.term < self.term and message.kind != APPEND_REPLY:\n",
        "late_ack",
    ),
    Bug(
        "committed beyond what was compared",
        "raft/replication.py",
        "state.commit_to(min(message.commit, last))",
        "state.commit_to(min(message.commit, log.last_index()))",
        "commit_bound",
    ),
    Bug(
        "heartbeat commits what the follower may not have",
        "raft/replication.py",
        "message.commit = min(progress.match, state.commit)",
        "message.commit = state.commit",
        MILD,
        ("assertion", "state machine safety"),
    ),
    # Reads
    Bug(
        "read answered without asking the others",
        "raft/reads.py",
        "    confirmed = _confirmed_round(state)\n",
        "    confirmed = state.read_round\n",
        "read_index",
    ),
    Bug(
        "read before the leader knows what is committed",
        "raft/reads.py",
        "    if not state.has_committed_own_term():\n        return\n",
        "",
        HARSH,
        ("stale read",),
    ),
    # Members
    Bug(
        "two changes of the members at once",
        "raft/membership.py",
        "if state.log.members_index() > state.commit:",
        "if state.log.members_index() > state.log.last_index():",
        "change_overlap",
    ),
    Bug(
        "change of the members before anything of the term is committed",
        "raft/membership.py",
        "    if not state.has_committed_own_term():\n        raise Busy",
        "    if state.commit < 0:\n        raise Busy",
        "change_too_early",
    ),
    Bug(
        "members not taken back with their entry",
        "raft/log.py",
        "while len(self._members) > 1 and self._members_from[-1] >= first:",
        "while len(self._members) > 1 and self._members_from[-1] > self.last_index() + 99:",
        "change_taken_back",
    ),
    Bug(
        "a node that is gone gets a vote",
        "raft/membership.py",
        "if not progress.is_active and not progress.is_asleep:",
        "if progress.match < 0:",
        "promote_dead",
    ),
    Bug(
        "a node whose removal is not committed asks for no votes",
        "raft/state.py",
        "return is_removal_open and log.members_at(self.commit).is_voter(self.node)",
        "return False",
        "removed_and_needed",
    ),
    Bug(
        "non-voters counted",
        "raft/replication.py",
        "for node in state.log.members().voters:",
        "for node in state.log.members().everyone():",
        MILD,
        ("durable majority",),
    ),
    # Snapshots
    Bug(
        "snapshot without live entries",
        "raft/core.py",
        "return self.log.compact(self.applied, state, live, trailing)",
        "return self.log.compact(self.applied, state, [], trailing)",
        MILD,
        ("body",),
    ),
    Bug(
        "live entries not on disk",
        "store/records.py",
        "write_numbers(writer, [int(entry.index) for entry in snapshot.live])",
        "write_numbers(writer, [])",
        HARSH,
        ("body", "assertion"),
    ),
    Bug(
        "snapshot cuts off what follows it",
        "raft/snapshot_transfer.py",
        "if state.log.matches(snapshot.index, snapshot.term):",
        "if state.log.matches(snapshot.index, snapshot.term + 1):",
        "snapshot_keeps_tail",
    ),
    # Hosts: turns of many groups, sleep and leases
    Bug(
        "effects of older terms performed",
        "group.py",
        "if raft.role != LEADER or entry.term != raft.term:",
        "if raft.role != LEADER:",
        MILD,
        ("effects",),
    ),
    Bug(
        "commit told to who lacks entries",
        "raft/replication.py",
        "has_all = progress.state == REPLICATE and progress.match == state.log.last_index()",
        "has_all = progress.state == REPLICATE",
        MILD,
        ("assertion", "state machine safety"),
    ),
    Bug(
        "sleep without the leader's log and commit",
        "raft/sleep.py",
        "has_all = is_same and state.commit == message.index",
        "has_all = True",
        "sleep_mismatch",
    ),
    Bug(
        "leader sleeps before all have agreed",
        "raft/sleep.py",
        "        if node != state.node and not progress.is_asleep:\n            return\n",
        "        if node != state.node and not progress.is_active:\n            return\n",
        "sleep_asked_again",
    ),
    Bug(
        "leader that wakes takes what was said before the sleep for a sign of life",
        "raft/sleep.py",
        "progress.is_active = False  # replies",
        "pass  # replies",
        "sleep_deaf_leader",
    ),
    Bug(
        "sleeper not woken by the lost lease of its leader's node",
        "host.py",
        "if raft.leader == node or (raft.role == LEADER and not self._hears_quorum(raft)):",
        "if raft.role == LEADER and not self._hears_quorum(raft):",
        "sleep_lost_leader",
    ),
    Bug(
        "sleeping leader not woken by a lost majority",
        "host.py",
        "if raft.leader == node or (raft.role == LEADER and not self._hears_quorum(raft)):",
        "if raft.leader == node:",
        "sleep_deaf_leader",
    ),
    Bug(
        "new incarnation of the leader's node ignored",
        "host.py",
        "if self.leases.on_heartbeat(message) != RESTARTED:",
        "if self.leases.on_heartbeat(message) != RESTARTED or message.source != self.node:",
        "sleep_restart",
    ),
    Bug(
        "sleep at the word of an older incarnation",
        "lease.py",
        "peer.is_alive and peer.incarnation == incarnation",
        "peer.is_alive",
        "sleep_stale",
    ),
    Bug(
        "sleeper votes though its leader's node lives",
        "host.py",
        "            silent_ticks = self.leases.silent_ticks(raft.leader)\n",
        "            silent_ticks = raft.config.election_ticks\n",
        "sleep_pre_vote",
    ),
    Bug(
        "sleeper ignores who asks for votes",
        "host.py",
        "    if message.term > raft.term:\n",
        "    if message.kind == 1:\n        return False\n    if message.term > raft.term:\n",
        "sleep_pre_vote",
    ),
    Bug(
        "messages of the leader do not wake",
        "host.py",
        "return kind != SLEEP and kind != COMMIT and not is_reply(kind)",
        "return kind == 1",
        "sleep",
    ),
    # The queue
    Bug(
        "numbers of publishers lost with the snapshot",
        "machine_state.py",
        "contents.publishers = _read_pairs(reader)",
        "_read_pairs(reader)",
        MILD,
        ("determinism", "duplicate", "order", "lost"),
    ),
    Bug(
        "numbers of publishers not looked at",
        "machine.py",
        "if command.seq <= last:",
        "if command.seq < last:",
        MILD,
        ("duplicate", "order"),
    ),
    Bug(
        "clock used in apply",
        "machine.py",
        "max(contents.now_ms, command.time_ms)",
        '__import__("time").monotonic_ns() // 1000',
        MILD,
        ("determinism",),
    ),
    Bug(
        "verdict of an older delivery taken for the next",
        "machine.py",
        "            consumer.next_tag += 1\n",
        "            consumer.next_tag += 1 - len(consumer.held)\n",
        MILD,
        ("settled again", "lost", "body", "assertion", "progress"),
    ),
)
