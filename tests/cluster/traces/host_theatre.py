"""Runs the commands of a trace on hosts, with a network and disks that the trace controls.

    nodes 1 2 3                 nodes that begin together, with one group
    lead 1                      node 1 starts an election
    tick 5 [1 2]                ticks of all hosts, or of these
    propose 1 2                 two commands; also `read 1 7`, `transfer 1 2`
    cut 1->2, heal              messages of a cut link are lost
    crash 1, restart 1          a restart is a new incarnation
    inject 2->1 sleep term=1 index=1 log_term=1 hint=1 context=1
    count 10 [1 2]              count the messages of ten ticks
    status [1]

All effects of a command that need no time happen at once. The output shows which member falls
asleep, wakes, leads or follows, with the tick of the command, and the answers.
"""

from collections import Counter

from leveret.cluster.commands import PURGE, encode_bare
from leveret.cluster.errors import (
    ClusterError,
)
from leveret.cluster.host import Host
from leveret.cluster.host_config import HostConfig
from leveret.cluster.machine import Machine
from leveret.cluster.raft.codec import decode_frame, encode_frame
from leveret.cluster.raft.entry import Members
from leveret.cluster.raft.messages import GRANTED, NAMES, SLEEP_REPLY, Message
from leveret.cluster.raft.state import CANDIDATE, LEADER, PRE_CANDIDATE, ROLE_NAMES
from leveret.cluster.turn import HostTurn
from tests.cluster.simulation.disk import Disk

GROUP = 7
FIELDS = ("index", "log_term", "commit", "hint", "context")


class HostTheatre:
    """The nodes of one trace, and the links between them."""

    def __init__(self) -> None:
        self.members = Members([], [])
        self.disks: dict[int, Disk] = {}
        self.hosts: dict[int, Host] = {}
        self.incarnations: Counter[int] = Counter()
        self.seen: dict[int, str] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.sent: Counter[str] = Counter()
        self.when = ""
        self.out: list[str] = []

    def run(self, line: str) -> list[str]:
        """What one command prints."""
        self.out = []
        self.when = ""
        name, *words = line.split()
        try:
            getattr(self, f"do_{name}")(*words)
        except ClusterError as refusal:
            self.out.append(f"refused: {refusal}")
        self._settle()
        return self.out

    # Setting up

    def do_nodes(self, *words: str) -> None:
        self.members = Members([int(word) for word in words], [])
        for node in self.members.voters:
            self._open(node)

    def _open(self, node: int) -> None:
        disk = self.disks.setdefault(node, Disk())
        disk.start()
        self.incarnations[node] += 1
        config = HostConfig()
        config.sleep_ticks = 5
        host = Host(node, self.incarnations[node], node, config)
        host.add_group(GROUP, disk.stored(GROUP, self.members), Machine())
        self.hosts[node] = host
        self.seen[node] = self._state(host)

    # Inputs

    def do_lead(self, word: str) -> None:
        for host in self.hosts.values():
            host.tick()  # they begin
        raft = self.hosts[int(word)].groups[GROUP].raft
        raft.elapsed = raft.timeout - 1
        self.hosts[int(word)].tick()

    def do_tick(self, count: str, *words: str) -> None:
        for tick in range(1, int(count) + 1):
            self.when = f"tick {tick}: "
            for node in [int(word) for word in words] or sorted(self.hosts):
                self.hosts[node].tick()
            self._settle()

    def do_propose(self, word: str, count: str = "1") -> None:
        commands = [encode_bare(PURGE, 1)] * int(count)
        self.out.append(f"from {self.hosts[int(word)].propose(GROUP, commands)} on")

    def do_read(self, word: str, number: str) -> None:
        self.hosts[int(word)].read(GROUP, int(number))

    def do_transfer(self, word: str, target: str) -> None:
        self.hosts[int(word)].transfer(GROUP, int(target))

    def do_cut(self, *links: str) -> None:
        self.cuts.update(_link(link) for link in links)

    def do_heal(self) -> None:
        self.cuts.clear()

    def do_crash(self, word: str) -> None:
        del self.hosts[int(word)]

    def do_restart(self, word: str) -> None:
        self.hosts.pop(int(word), None)
        self._open(int(word))
        self.do_status(word)

    def do_inject(self, link: str, kind: str, *words: str) -> None:
        source, target = _link(link)
        named = dict(word.split("=") for word in words)
        number = NAMES.index(kind.replace("_", " "))
        message = Message(number, source, target, GROUP, int(named["term"]))
        for name in FIELDS:
            setattr(message, name, int(named.get(name, 0)))
        self.hosts[target].receive([message])

    # Work

    def _settle(self) -> None:
        is_busy = True
        while is_busy:
            self._look()
            is_busy = False
            for host in self.hosts.values():
                is_busy = self._work(host) or is_busy

    def _work(self, host: Host) -> bool:
        turn = host.turn()
        if turn is None:
            return False
        disk = self.disks[host.node]
        disk.write(turn.writes, turn.must_sync)
        disk.sync()
        self._send(host.node, turn)
        for outcome in host.done(turn):
            for answer in outcome.answers:
                self.out.append(f"{self.when}{host.node} answers read {answer.number}")
        return True

    def _send(self, source: int, turn: HostTurn) -> None:
        for target, messages in turn.messages.items():
            for message in messages:
                self.sent[NAMES[message.kind]] += 1
                if message.kind == SLEEP_REPLY and message.context != GRANTED:
                    self.out.append(f"{self.when}{source} will not sleep")
            if target in self.hosts and (source, target) not in self.cuts:
                frame = encode_frame(source, target, messages)
                self.hosts[target].receive(decode_frame(frame))

    # Looking

    def _look(self) -> None:
        for node, host in sorted(self.hosts.items()):
            state = self._state(host)
            if state != self.seen[node]:
                self.seen[node] = state
                self.out.append(f"{self.when}{node} {state}")

    def _state(self, host: Host) -> str:
        raft = host.groups[GROUP].raft
        if raft.is_asleep:
            return "sleeps"
        if raft.role == LEADER:
            return f"leads term {raft.term}, awake"
        if raft.role in (PRE_CANDIDATE, CANDIDATE):
            return f"is {ROLE_NAMES[raft.role]} of term {raft.term}"
        return f"follows {raft.leader or 'nobody'} in term {raft.term}, awake"

    def do_count(self, count: str, *words: str) -> None:
        self.sent.clear()
        self.do_tick(count, *words)
        found = ", ".join(f"{number} {name}s" for name, number in sorted(self.sent.items()))
        self.out.append(found or "nothing")

    def do_status(self, *words: str) -> None:
        for node in [int(word) for word in words] or sorted(self.hosts):
            raft = self.hosts[node].groups[GROUP].raft
            self.out.append(
                f"{node} {self._state(self.hosts[node])}: term {raft.term}, "
                f"last {raft.log.last_index()}, commit {raft.commit}, applied {raft.applied}"
            )


def _link(word: str) -> tuple[int, int]:
    source, target = word.split("->")
    return int(source), int(target)
