"""Publishers and consumers of the simulated queue: they repeat unanswered requests.

A client talks to the node that it believes to lead, and learns the leader from refusals. It ignores
leaders of older terms than it has heard, except for their confirms, which stay valid for ever.
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
from leveret.cluster.errors import (
    BusyError,
    NotLeaderError,
    UnknownGroupError,
)
from leveret.cluster.host import Host
from leveret.cluster.turn import Outcome
from tests.cluster.simulation.node import Node
from tests.cluster.simulation.stage import Stage

RESEND_AFTER = 150
WINDOW = 5


class Client:
    """Someone who talks to the leader of a group."""

    def __init__(self, stage: Stage, nodes: dict[int, Node], group: int, number: int) -> None:
        self.stage = stage
        self.checker = stage.checkers[group]
        self.nodes = nodes
        self.group = group
        self.number = number
        self.leader = 0
        self.term = 0

    def ask(self, make: Callable[[int], list[bytes]]) -> None:
        """Propose commands, made for the time of the node that is asked."""
        if self.stage.is_silent:
            return
        node = self.nodes.get(self.leader)
        if node is None or node.raft(self.group) is None:
            up = [node for node in self.nodes.values() if node.raft(self.group) is not None]
            if not up:
                return
            node = self.stage.rng.choice(up)
            self.leader = node.number
        chosen = node
        chosen.call(lambda host: self._propose(host, make(chosen.clock_ms())))

    def _propose(self, host: Host, commands: list[bytes]) -> None:
        try:
            host.propose(self.group, commands)
        except NotLeaderError as error:
            self.leader = error.leader
            self.on_refused()
        except UnknownGroupError:
            self.leader = 0
            self.on_refused()
        except BusyError:
            self.on_refused()

    def on_refused(self) -> None:
        """Nothing was proposed."""


class Publisher(Client):
    """Numbers its messages and keeps those that are not confirmed."""

    def __init__(self, stage: Stage, nodes: dict[int, Node], group: int, number: int) -> None:
        super().__init__(stage, nodes, group, number)
        self.next_seq = 1
        self.unconfirmed: dict[int, bytes] = {}
        self.sent_at = 0

    def publish(self) -> None:
        """A new message, or all that is not confirmed once more."""
        stage = self.stage
        if stage.is_quiet(self.group):
            return
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
        self.checker.on_confirmed(self.number, seq)
        self.unconfirmed.pop(seq, None)


class Taker(Client):
    """A consumer: takes messages, and gives a verdict on each until that is acknowledged."""

    def __init__(self, stage: Stage, nodes: dict[int, Node], group: int, number: int) -> None:
        super().__init__(stage, nodes, group, number)
        self.verdicts: dict[int, int] = {}  # tag to kind, not acknowledged yet
        self.taken: set[int] = set()  # tags whose verdict was acknowledged
        self.prefetch = stage.rng.choice((1, 3, 10))

    def attach(self) -> None:
        if not self.stage.is_quiet(self.group):
            self.ask(lambda now: [encode_attach(now, self.number, self.number, self.prefetch)])

    def on_deliver(self, node: int, outcome: Outcome, index: int, tag: int) -> None:
        if outcome.term < self.term:
            return
        self.term = outcome.term
        stage = self.stage
        self.checker.on_delivered(index, self.nodes[node].body(self.group, index))
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

    def on_settled(self, outcome: Outcome, index: int, tag: int) -> None:
        """Taken now, or before: with index 0 nobody can say what became of the message."""
        if outcome.term < self.term:
            return
        self.term = outcome.term
        self.taken.add(tag)
        if self.verdicts.pop(tag, None) == SETTLE and index:
            self.checker.settled.add(index)
