"""Runs the commands of a trace on members, with a network and disks that the trace controls.

    group 1 2 3                 members that begin together; `join 4`: one that waits to be added
    log 1 term=2 vote=1 1 1 2   the disk of a node before it starts: terms of its entries
    chunks 1 1000               the size of snapshot chunks; 40 bytes otherwise
    timeout 1                   an election timeout; `tick 1 5`: five ticks
    propose 1 a b               commands; also `read 1 7`, `transfer 1 2`, `add 1 4`, `promote 1 4`,
                                `remove 1 3`, `compact 1`
    work 1                      one ready: written, synced, sent, applied
    write 1, sync 1             the same in two steps, to crash between them
    deliver 1->2                messages in flight, all or from and to; `drop 1->2` loses them
    repeat 1->2                 the last delivered messages arrive once more
    settle                      everything, until nothing happens; prints the applied entries
    cut 1->2, heal              messages sent over a cut link are lost
    crash 1, restart 1          unsynced data is lost
    inject 2->1 append term=1 index=3 log_term=1 commit=9 entries=1,1
    status [1]                  roles, terms, logs

A command that a member refuses prints why.
"""

from collections.abc import Callable

from leveret.cluster.errors import (
    ClusterError,
)
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import CONFIG, EMPTY, NOBODY, Entry, Members, decode_members
from leveret.cluster.raft.messages import APPEND, HEARTBEAT, NAMES, SNAPSHOT, Message
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.state import LEADER, ROLE_NAMES
from tests.cluster.simulation.disk import Disk

GROUP = 7
FIELDS = ("index", "log_term", "commit", "hint", "context")
TURNS_MAX = 500


class Theatre:
    """The members of one trace, and the messages between them."""

    def __init__(self) -> None:
        self.members = Members([], [])
        self.disks: dict[int, Disk] = {}
        self.rafts: dict[int, Raft] = {}
        self.begun: dict[int, Ready] = {}  # written, not synced
        self.wire: list[Message] = []
        self.delivered: list[Message] = []
        self.cuts: set[tuple[int, int]] = set()
        self.out: list[str] = []

    def run(self, line: str) -> list[str]:
        """What one command prints."""
        self.out = []
        name, *words = line.split()
        command: Callable[..., None] = getattr(self, f"do_{name}")
        try:
            command(*words)
        except ClusterError as refusal:
            self.out.append(f"refused: {refusal}")
        except AssertionError as failure:
            self.out.append(f"assertion failed: {failure}")
        return self.out

    # Setting up

    def do_group(self, *words: str) -> None:
        self.members = Members([int(word) for word in words], [])
        for node in self.members.voters:
            self._open(node, self.members)

    def do_join(self, word: str) -> None:
        self._open(int(word), Members([], []))

    def _open(self, node: int, members: Members) -> None:
        disk = self.disks.setdefault(node, Disk())
        disk.is_checked = False  # the trace tells
        disk.start()
        config = Config(node, GROUP)
        config.trailing = 0
        config.chunk_bytes = 40
        config.promote_lag_max = 2
        self.rafts[node] = Raft(config, disk.stored(GROUP, members), node)

    def do_log(self, word: str, *words: str) -> None:
        """Write a log to the disk of a node, and start it from there."""
        node = int(word)
        named = dict(word.split("=") for word in words if "=" in word)
        terms = [int(word) for word in words if "=" not in word]
        ready = Ready(
            int(named.get("term", terms[-1])),
            int(named.get("vote", NOBODY)),
            int(named.get("commit", 0)),
        )
        ready.is_changed = ready.must_sync = True
        ready.entries = [
            Entry(at + 1, t, 1, f"{at + 1}.{t}".encode()) for at, t in enumerate(terms)
        ]
        self.disks[node].write([(GROUP, ready)], ready.must_sync)
        self.disks[node].sync()
        self._open(node, self.members)

    def do_chunks(self, word: str, chunk_bytes: str) -> None:
        self.rafts[int(word)].config.chunk_bytes = int(chunk_bytes)

    # Inputs

    def do_timeout(self, word: str) -> None:
        raft = self.rafts[int(word)]
        raft.elapsed = raft.timeout - 1
        raft.tick()

    def do_tick(self, word: str, count: str = "1") -> None:
        for _ in range(int(count)):
            self.rafts[int(word)].tick()

    def do_propose(self, word: str, *commands: str) -> None:
        first = self.rafts[int(word)].propose([command.encode() for command in commands])
        self.out.append(f"from {first} on")

    def do_read(self, word: str, number: str) -> None:
        self.rafts[int(word)].read(int(number))

    def do_transfer(self, word: str, target: str) -> None:
        self.rafts[int(word)].transfer(int(target))

    def do_add(self, word: str, node: str) -> None:
        self.out.append(f"at {self.rafts[int(word)].add_non_voter(int(node))}")

    def do_promote(self, word: str, node: str) -> None:
        self.out.append(f"at {self.rafts[int(word)].promote(int(node))}")

    def do_remove(self, word: str, node: str) -> None:
        self.out.append(f"at {self.rafts[int(word)].remove(int(node))}")

    def do_compact(self, word: str, *live: str) -> None:
        raft = self.rafts[int(word)]
        raft.compact(f"state at {raft.applied}".encode(), [int(word) for word in live])

    def do_inject(self, link: str, kind: str, *words: str) -> None:
        source, target = _link(link)
        named = dict(word.split("=") for word in words)
        message = Message(NAMES.index(kind.replace("_", " ")), source, target, GROUP, 0)
        message.term = int(named["term"])
        for name in FIELDS:
            setattr(message, name, int(named.get(name, 0)))
        terms = [int(term) for term in named.get("entries", "").split(",") if term]
        first = message.index + 1
        message.entries = [
            Entry(first + at, t, 1, f"{first + at}.{t}".encode()) for at, t in enumerate(terms)
        ]
        self.rafts[target].step(message)

    # Work

    def do_work(self, word: str) -> None:
        self.do_write(word)
        if int(word) in self.begun:
            self.do_sync(word)

    def do_write(self, word: str) -> None:
        node = int(word)
        ready = self.rafts[node].ready()
        if ready is None:
            self.out.append(f"{node} has nothing to do")
            return
        if ready.has_writes():
            self.disks[node].write([(GROUP, ready)], ready.must_sync)
            self.out.append(f"{node} writes {_writes(ready)}")
        self.begun[node] = ready

    def do_sync(self, word: str) -> None:
        node = int(word)
        self.disks[node].sync()
        ready = self.begun.pop(node)
        for message in ready.messages:
            is_cut = (message.source, message.target) in self.cuts
            self.out.append(f"{_text(message)}{' (lost)' if is_cut else ''}")
            if not is_cut:
                self.wire.append(message)
        if ready.snapshot is not None and ready.is_received:
            self.out.append(f"{node} begins from {ready.snapshot.state.decode()!r}")
        if ready.committed:
            self.out.append(f"{node} applies {' '.join(map(_entry, ready.committed))}")
        for answer in ready.answers:
            self.out.append(f"{node} answers read {answer.number}: up to {answer.index}")
        self.rafts[node].advance(ready)

    def do_settle(self) -> None:
        """Everything that can happen without time going on."""
        kept: list[str] = []
        for _ in range(TURNS_MAX):
            self.out = []
            for node in sorted(self.rafts):
                while (ready := self.rafts[node].ready()) is not None:
                    if ready.has_writes():
                        self.disks[node].write([(GROUP, ready)], ready.must_sync)
                    self.begun[node] = ready
                    self.do_sync(str(node))
            is_quiet = not self.wire
            kept += [line for line in self.out if "->" not in line]
            self.do_deliver()
            if is_quiet:
                break
        self.out = kept

    def do_deliver(self, link: str = "") -> None:
        messages = self._take(link)
        self.delivered = messages
        for message in messages:
            if message.target in self.rafts:
                self.rafts[message.target].step(message)

    def do_repeat(self, link: str = "") -> None:
        for message in self.delivered:
            if not link or _link(link) == (message.source, message.target):
                self.rafts[message.target].step(message)

    def do_drop(self, link: str = "") -> None:
        for message in self._take(link):
            self.out.append(f"lost: {_text(message)}")

    def _take(self, link: str) -> list[Message]:
        taken = [m for m in self.wire if not link or _link(link) == (m.source, m.target)]
        self.wire = [m for m in self.wire if m not in taken]
        return taken

    def do_cut(self, *links: str) -> None:
        self.cuts.update(_link(link) for link in links)

    def do_heal(self) -> None:
        self.cuts.clear()

    def do_crash(self, word: str) -> None:
        node = int(word)
        self.disks[node].lose()
        self.begun.pop(node, None)
        del self.rafts[node]
        self.wire = [m for m in self.wire if m.target != node]

    def do_restart(self, word: str) -> None:
        self._open(int(word), self.members)
        self.do_status(word)

    # Looking

    def do_status(self, *words: str) -> None:
        for node in [int(word) for word in words] or sorted(self.rafts):
            raft = self.rafts[node]
            terms = " ".join(str(entry.term) for entry in raft.log.entries)
            base = f"{raft.log.base_index}/{raft.log.base_term}… " if raft.log.base_index else ""
            log = f"[{(base + terms).strip()}]"
            live = f" keeping {sorted(raft.log.live)}" if raft.log.live else ""
            voters = raft.log.members().voters
            non_voters = raft.log.members().non_voters
            others = f" and {non_voters}" if non_voters else ""
            votes = f", votes for {raft.vote}" if raft.vote else ""
            self.out.append(
                f"{node}: {ROLE_NAMES[raft.role]} of term {raft.term}{votes}, log {log}{live}, "
                f"commit {raft.commit}, members {voters}{others}"
            )
            if raft.role == LEADER:
                matches = {n: int(p.match) for n, p in sorted(raft.progress.items())}
                self.out.append(f"   matches {matches}")


def _link(word: str) -> tuple[int, int]:
    source, target = word.split("->")
    return int(source), int(target)


def _entry(entry: Entry) -> str:
    if entry.kind == EMPTY:
        return f"{entry.index}/{entry.term}"
    if entry.kind == CONFIG:
        members = decode_members(entry.data)
        return f"{entry.index}/{entry.term} members {members.voters}+{members.non_voters}"
    return f"{entry.index}/{entry.term} {entry.data.decode()}"


def _writes(ready: Ready) -> str:
    parts = []
    if ready.is_changed:
        parts.append(f"term {ready.term} vote {ready.vote} commit {ready.commit}")
    if ready.snapshot is not None:
        parts.append(f"snapshot at {ready.snapshot.index}")
    if ready.entries:
        parts.append(f"entries {' '.join(map(_entry, ready.entries))}")
    return "; ".join(parts)


def _text(message: Message) -> str:
    parts = [f"{message.source}->{message.target} {NAMES[message.kind]}, term {message.term}"]
    for name in FIELDS:
        value = getattr(message, name)
        if value:
            parts.append(f"{name} {value}")
    if message.kind == APPEND:
        parts.append(f"entries [{', '.join(map(_entry, message.entries))}]")
    elif message.kind == SNAPSHOT:
        parts.append(f"{len(message.data)} bytes")
    elif message.kind == HEARTBEAT and not message.commit:
        parts.append("commit 0")
    return ", ".join(parts)
