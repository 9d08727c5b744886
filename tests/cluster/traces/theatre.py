"""Runs the commands of a trace on members, with a network and disks that the trace controls.

    group 1 2 3                 members that begin together; `join 4`: one that waits to be added
    log 1 term=2 vote=1 1 1 2   the disk of a node before it starts: terms of its blocks
    timeout 1                   an election timeout; `tick 1 5`: five ticks; `hang 1 3 5`: ticks
                                while a sync is under way for 3, 4 and 5 ticks
    propose 1 a b               blocks; also `transfer 1 2`, `add 1 4`, `promote 1 4`, `remove 1 3`
    forget 1 5                  log files up to a block are removed; `copy 1 3`: the directory of 1
                                is copied to 3
    work 1                      one ready: written, synced, sent
    write 1, sync 1             the same in two steps, to crash between them
    deliver 1->2                messages in flight, all or from and to; `drop 1->2` loses them
    repeat 1->2                 the last delivered messages arrive once more
    settle                      everything, until nothing happens; prints what is committed
    cut 1->2, heal              messages sent over a cut link are lost
    unlink 1 2                  node 1 loses its link to node 2
    crash 1, restart 1          unsynced data is lost
    damage 1 3                  the disk of a node that is down loses the blocks from 3 on
    inject 2->1 append term=1 index=3 log_term=1 commit=9 blocks=1,1
    status [1]                  roles, terms, logs

A command that a member refuses prints why.
"""

from collections.abc import Callable

from leveret.cluster.errors import ClusterError, FalseMessageError
from leveret.cluster.raft.block import MEMBERS, NORMAL, TERM, Block
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.members import NOBODY, Member, Members, encode_members
from leveret.cluster.raft.messages import APPEND, HEARTBEAT, NAMES, Message
from leveret.cluster.raft.ready import ReadRequest, Ready
from leveret.cluster.raft.state import LEADER, ROLE_NAMES
from leveret.cluster.raft.stored import UNKNOWN_PROMISE, HardState
from tests.cluster.simulation.disk import Disk

FIELDS = ("index", "log_term", "commit", "hint", "context")
TURNS_MAX = 500


class Theatre:
    """The members of one trace, and the messages between them."""

    def __init__(self) -> None:
        self.members = Members([], [])
        self.disks: dict[int, Disk] = {}
        self.rafts: dict[int, Raft] = {}
        self.begun: dict[int, Ready] = {}  # written, not synced
        self.commits: dict[int, int] = {}  # as last printed
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
        except (AssertionError, FalseMessageError) as failure:
            self.out.append(f"assertion failed: {failure}")
        return self.out

    # Setting up

    def do_group(self, *words: str) -> None:
        self.members = Members([Member(int(word)) for word in words], [])
        for node in self.members.voters:
            self.disks[node] = Disk()
            self.disks[node].durable.base_members = 0, self.members
            self._open(node)

    def do_join(self, word: str) -> None:
        self.disks[int(word)] = Disk()
        self._open(int(word))

    def _open(self, node: int, commit: int = 0) -> None:
        self.disks[node].lose()
        config = Config(node)
        config.held_count_max = 0
        config.window_bytes_max = 0
        config.promote_lag_max = 2
        self.rafts[node] = Raft(config, self.disks[node].durable.stored(commit), node)
        self.begun.pop(node, None)
        self.commits[node] = self.rafts[node].commit

    def do_log(self, word: str, *words: str) -> None:
        """Write a log to the disk of a node, and start it from there."""
        node = int(word)
        named = dict(word.split("=") for word in words if "=" in word)
        terms = [int(word) for word in words if "=" not in word]
        image = self.disks[node].durable
        term = int(named.get("term", terms[-1]))
        image.hard = HardState(term, int(named.get("vote", NOBODY)))
        image.blocks = _blocks(1, terms)
        self._open(node)

    # Inputs

    def do_timeout(self, word: str) -> None:
        raft = self.rafts[int(word)]
        raft.elapsed = raft.timeout - 1
        raft.tick()

    def do_tick(self, word: str, count: str = "1") -> None:
        for _ in range(int(count)):
            self.rafts[int(word)].tick()

    def do_hang(self, word: str, first: str, last: str) -> None:
        for sync_ticks in range(int(first), int(last) + 1):
            self.rafts[int(word)].tick(sync_ticks)

    def do_propose(self, word: str, *datas: str) -> None:
        first = self.rafts[int(word)].log.last_index + 1
        for data in datas:
            self._append(int(word), NORMAL, data.encode())
        self.out.append(f"from {first} on")

    def _append(self, node: int, kind: int, data: bytes, members: Members | None = None) -> None:
        raft = self.rafts[node]
        block = Block(raft.log.last_index + 1, raft.term, kind, data, members)
        raft.append(block)
        self.disks[node].write(block)

    def do_transfer(self, word: str, target: str) -> None:
        self.rafts[int(word)].transfer(int(target))

    def do_add(self, word: str, node: str) -> None:
        self._change(int(word), self.rafts[int(word)].plan_add(Member(int(node))))

    def do_promote(self, word: str, node: str) -> None:
        self._change(int(word), self.rafts[int(word)].plan_promote(int(node)))

    def do_remove(self, word: str, node: str) -> None:
        self._change(int(word), self.rafts[int(word)].plan_remove(int(node)))

    def _change(self, node: int, members: Members) -> None:
        self._append(node, MEMBERS, encode_members(members), members)
        self.out.append(f"at {self.rafts[node].log.last_index}")

    def do_forget(self, word: str, base: str) -> None:
        self.rafts[int(word)].forget(int(base))
        self.disks[int(word)].forget(int(base))

    def do_copy(self, word: str, target: str) -> None:
        leader, node = self.rafts[int(word)], int(target)
        image = self.disks[int(word)].durable.copy()
        image.cut(leader.commit + 1)
        image.hard = self.rafts[node].hard.copy()
        if not self.rafts[node].may_install(image.last, leader.log.term(image.last)):
            self.out.append(f"{node} does not take the copy")
            leader.on_copy_failed(node)
            return
        self.disks[node].install(image)
        self._open(node, image.last)
        leader.on_copied(node, image.last)

    def do_inject(self, link: str, kind: str, *words: str) -> None:
        source, target = _link(link)
        named = dict(word.split("=") for word in words)
        term = int(named["term"])
        message = Message(NAMES.index(kind.replace("_", " ")), source, target, term)
        for name in FIELDS:
            setattr(message, name, int(named.get(name, 0)))
        terms = [int(term) for term in named.get("blocks", "").split(",") if term]
        message.blocks = _blocks(message.index + 1, terms)
        self.rafts[target].step(message)

    # Work

    def do_work(self, word: str) -> None:
        self.do_write(word)
        self.do_sync(word)

    def do_write(self, word: str) -> None:
        node = int(word)
        raft = self.rafts[node]
        if raft.needs_term_block():
            self._append(node, TERM, b"")
        ready = raft.ready()
        if ready is not None:
            self.begun[node] = ready
            self._issue(node, ready)
        self._send(node)

    def _issue(self, node: int, ready: Ready) -> None:
        disk = self.disks[node]
        if ready.is_hard_changed:
            disk.write(ready.hard)
        if ready.cut_from:
            disk.write(int(ready.cut_from))
        for block in ready.blocks:
            disk.write(block)
        text = _writes(ready)
        if text:
            self.out.append(f"{node} writes {text}")

    def do_sync(self, word: str) -> None:
        node = int(word)
        disk, raft = self.disks[node], self.rafts[node]
        disk.sync(disk.issued)
        ready = self.begun.pop(node, None)
        if ready is not None:
            raft.advance(ready)
        raft.on_synced(disk.durable.last, raft.log.term(disk.durable.last))
        self._send(node)

    def _send(self, node: int) -> None:
        raft = self.rafts[node]
        for message in raft.take_messages():
            is_cut = (message.source, message.target) in self.cuts
            self.out.append(f"{_text(message)}{' (lost)' if is_cut else ''}")
            if not is_cut:
                self.wire.append(message)
        for request in raft.take_reads():
            self._read(raft, request)
        for target in raft.take_copies():
            self.out.append(f"{node} must copy its directory to {target}")
        if raft.commit != self.commits[node]:
            self.commits[node] = raft.commit
            self.out.append(f"{node} has committed {raft.commit}")

    def _read(self, raft: Raft, request: ReadRequest) -> None:
        image = self.disks[int(raft.node)].durable
        found = [image.block(at) for at in range(request.first, request.last + 1)]
        self.out.append(f"{raft.node} reads {request.first} to {request.last} for {request.node}")
        raft.on_read(request, [block for block in found if block is not None])
        self._send(int(raft.node))

    def do_settle(self) -> None:
        """Everything that can happen without time going on."""
        kept: list[str] = []
        for _ in range(TURNS_MAX):
            self.out = []
            for node in sorted(self.rafts):
                self.do_work(str(node))
            is_quiet = not self.wire and not self.out
            kept += [line for line in self.out if "->" not in line and "writes" not in line]
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

    def do_unlink(self, word: str, other: str) -> None:
        self.rafts[int(word)].on_link_lost(int(other))

    def do_crash(self, word: str) -> None:
        node = int(word)
        self.begun.pop(node, None)
        del self.rafts[node]
        self.wire = [m for m in self.wire if m.target != node]

    def do_damage(self, word: str, first: str) -> None:
        disk = self.disks[int(word)]
        disk.lose()
        disk.durable.cut(int(first))
        disk.durable.hard.note_loss(UNKNOWN_PROMISE)

    def do_restart(self, word: str) -> None:
        self._open(int(word))
        self.do_status(word)

    # Looking

    def do_status(self, *words: str) -> None:
        for node in [int(word) for word in words] or sorted(self.rafts):
            raft = self.rafts[node]
            log = raft.log
            terms = " ".join(
                str(log.term(at)) for at in range(log.base_index + 1, log.last_index + 1)
            )
            base = f"{log.base_index}/{log.term(log.base_index)}… " if log.base_index else ""
            voters, non_voters = log.members().voters, log.members().non_voters
            others = f" and {non_voters}" if non_voters else ""
            votes = f", votes for {raft.vote}" if raft.vote else ""
            votes += "" if raft.hard.may_vote else ", may not vote"
            synced = f" (synced {log.synced_index})" if log.synced_index < log.last_index else ""
            self.out.append(
                f"{node}: {ROLE_NAMES[raft.role]} of term {raft.term}{votes}, "
                f"log [{(base + terms).strip()}]{synced}, commit {raft.commit}, "
                f"members {voters}{others}"
            )
            if raft.role == LEADER:
                matches = {n: int(p.match) for n, p in sorted(raft.progress.items())}
                self.out.append(f"   matches {matches}")


def _link(word: str) -> tuple[int, int]:
    source, target = word.split("->")
    return int(source), int(target)


def _blocks(first: int, terms: list[int]) -> list[Block]:
    """Blocks with these terms. Their kind is of no importance here."""
    return [
        Block(first + at, t, NORMAL, f"{first + at}.{t}".encode()) for at, t in enumerate(terms)
    ]


def _block(block: Block) -> str:
    if block.kind == TERM:
        return f"{block.index}/{block.term}"
    if block.members is not None:
        voters, non_voters = block.members.voters, block.members.non_voters
        return f"{block.index}/{block.term} members {voters}+{non_voters}"
    return f"{block.index}/{block.term} {block.data.decode()}"


def _writes(ready: Ready) -> str:
    parts = []
    if ready.is_hard_changed:
        parts.append(f"term {ready.hard.term} vote {ready.hard.vote}")
    if ready.cut_from:
        parts.append(f"a cut from {ready.cut_from} on")
    if ready.blocks:
        parts.append(f"blocks {' '.join(map(_block, ready.blocks))}")
    return "; ".join(parts)


def _text(message: Message) -> str:
    parts = [f"{message.source}->{message.target} {NAMES[message.kind]}, term {message.term}"]
    for name in FIELDS:
        value = getattr(message, name)
        if value:
            parts.append(f"{name} {value}")
    if message.kind == APPEND:
        parts.append(f"blocks [{', '.join(map(_block, message.blocks))}]")
    elif message.kind == HEARTBEAT and not message.commit:
        parts.append("commit 0")
    return ", ".join(parts)
