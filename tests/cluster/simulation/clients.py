"""Publishers and consumers of the simulated queue: they send again what is not answered.

A client talks to the node that it believes to lead and learns better by refusals. It ignores what
comes from a leader of an older term than it has heard of, but for confirms: those are true for
ever.
"""

from collections.abc import Callable

from leveret.cluster.commands import (
    DISCARD,
    RETURN,
    SETTLE,
    encode_attach,
    encode_enqueue,
    encode_verdict,
)
from leveret.cluster.raft.core import Raft
from leveret.errors import Busy, NotLeader
from tests.cluster.simulation.host import Host
from tests.cluster.simulation.stage import Stage

RESEND_AFTER = 150
WINDOW = 5


class Client:
    """Someone who talks to the leader."""

    def __init__(self, stage: Stage, hosts: dict[int, Host], number: int) -> None:
        self.stage = stage
        self.hosts = hosts
        self.number = number
        self.leader = 0
        self.term = 0

    def ask(self, make: Callable[[int], list[bytes]]) -> None:
        """Propose commands, made for the time of the node that is asked."""
        host = self.hosts.get(self.leader)
        if host is None or host.raft is None:
            up = [host for host in self.hosts.values() if host.raft is not None]
            if not up:
                return
            host = self.stage.rng.choice(up)
            self.leader = host.number
        chosen = host
        chosen.call(lambda raft: self._propose(raft, make(chosen.clock_ms())))

    def _propose(self, raft: Raft, commands: list[bytes]) -> None:
        try:
            raft.propose(commands)
        except NotLeader as error:
            self.leader = error.leader
            self.on_refused()
        except Busy:
            self.on_refused()

    def on_refused(self) -> None:
        """Nothing was proposed."""


class Publisher(Client):
    """Numbers its messages and keeps those that are not confirmed."""

    def __init__(self, stage: Stage, hosts: dict[int, Host], number: int) -> None:
        super().__init__(stage, hosts, number)
        self.next_seq = 1
        self.unconfirmed: dict[int, bytes] = {}
        self.sent_at = 0

    def publish(self) -> None:
        """A new message, or all that is not confirmed once more."""
        stage = self.stage
        if self.unconfirmed and stage.now - self.sent_at > RESEND_AFTER:
            self.resend()
        elif len(self.unconfirmed) < WINDOW and not stage.is_calm:
            seqs = range(self.next_seq, self.next_seq + stage.rng.choice((1, 1, 2)))
            self.next_seq = seqs.stop
            for seq in seqs:
                self.unconfirmed[seq] = f"message {seq} of {self.number}".encode()
            self._send(list(seqs))

    def resend(self) -> None:
        if self.stage.rng.random() < 0.5:
            self.leader = 0
        self._send(list(self.unconfirmed))

    def _send(self, seqs: list[int]) -> None:
        self.sent_at = self.stage.now
        ttl_ms = self.stage.rng.choice((0, 0, 0, 400))
        bodies = [(seq, self.unconfirmed[seq]) for seq in seqs]
        self.ask(
            lambda now: [
                encode_enqueue(now, self.number, seq, ttl_ms, body) for seq, body in bodies
            ]
        )

    def on_refused(self) -> None:
        self.sent_at = self.stage.now - RESEND_AFTER + 10  # not at once, and not late

    def on_confirm(self, seq: int) -> None:
        self.stage.checker.on_confirmed(self.number, seq)
        self.unconfirmed.pop(seq, None)


class Taker(Client):
    """A consumer: takes messages, and gives a verdict on each until that is acknowledged."""

    def __init__(self, stage: Stage, hosts: dict[int, Host], number: int) -> None:
        super().__init__(stage, hosts, number)
        self.verdicts: dict[int, int] = {}  # tag to kind, not acknowledged yet
        self.taken: set[int] = set()  # tags whose verdict was acknowledged
        self.prefetch = stage.rng.choice((1, 3, 10))

    def attach(self) -> None:
        self.ask(lambda now: [encode_attach(now, self.number, self.number, self.prefetch)])

    def on_deliver(self, raft: Raft, index: int, tag: int) -> None:
        if raft.term < self.term:
            return
        self.term = raft.term
        stage = self.stage
        stage.checker.on_delivered(index, self.hosts[raft.node].body(index))
        if tag not in self.verdicts and tag not in self.taken:
            kind = stage.rng.choice((SETTLE, SETTLE, SETTLE, SETTLE, RETURN, DISCARD))
            self.verdicts[tag] = kind
            stage.after(stage.rng.randrange(1, 30), self.decide, tag)

    def decide(self, tag: int) -> None:
        """Say it, and again until it is taken."""
        kind = self.verdicts.get(tag)
        if kind is not None:
            self.ask(lambda now: [encode_verdict(kind, now, self.number, [tag])])
            self.stage.after(RESEND_AFTER, self.decide, tag)

    def on_settled(self, raft: Raft, index: int, tag: int) -> None:
        """Taken now, or before: with index 0 nobody can say what became of the message."""
        if raft.term < self.term:
            return
        self.term = raft.term
        self.taken.add(tag)
        if self.verdicts.pop(tag, None) == SETTLE and index:
            self.stage.checker.settled.add(index)
