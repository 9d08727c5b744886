"""One group on a node: its member, its machine, and the state that was reported about them.

Only the leader performs effects, and only those of entries of its own term: effects of earlier
entries may have been performed, and answered, by other leaders. When the first entry of its term is
applied, the machine's `resume` repeats the effects that are still due.
"""

from mypy_extensions import i64

from leveret.cluster.machine import Effect, Machine
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import COMMAND, EMPTY, NOBODY, Entry
from leveret.cluster.raft.ready import ReadAnswer, Ready
from leveret.cluster.raft.state import LEADER
from leveret.cluster.turn import Outcome


class Group:
    """One group; see the module."""

    def __init__(self, raft: Raft, machine: Machine) -> None:
        self.number: i64 = raft.group
        self.raft = raft
        self.machine = machine
        self.resumed_term: i64 = 0  # in which the machine was told that it leads
        self.answers: list[ReadAnswer] = []  # wait until what they need is applied
        self.has_slept = False  # since it was added
        self.quiet_ticks: i64 = 0  # as leader: how long nothing has happened
        self.leader_incarnation: i64 = 0  # asleep as follower: whose lease it relies on
        # As the last outcome said
        self.told_term: i64 = raft.term
        self.told_role: i64 = raft.role
        self.told_leader: i64 = NOBODY

    def finish(self, ready: Ready) -> Outcome | None:
        """A `Ready` is written and sent: apply, and say what there is to tell, if anything."""
        snapshot = ready.snapshot
        if snapshot is not None and ready.is_received:
            self.machine.restore(snapshot.state)
        effects: list[Effect] = []
        for entry in ready.committed:
            self._apply(entry, effects)
        self.answers.extend(ready.answers)
        self.raft.advance(ready)
        return self._outcome(effects)

    def _apply(self, entry: Entry, effects: list[Effect]) -> None:
        raft = self.raft
        found: list[Effect] = []
        if entry.kind == COMMAND:
            found = self.machine.apply(entry.index, entry.data)
        if raft.role != LEADER or entry.term != raft.term:
            return
        if entry.kind == EMPTY and self.resumed_term != raft.term:
            self.resumed_term = raft.term
            found = self.machine.resume()
        effects.extend(found)

    def _outcome(self, effects: list[Effect]) -> Outcome | None:
        is_changed = self._is_changed()
        answers = self._served()
        if not effects and not answers and not is_changed:
            return None
        raft = self.raft
        outcome = Outcome(self.number, raft.term, raft.role, raft.leader)
        outcome.is_changed = is_changed
        outcome.effects = effects
        outcome.answers = answers
        return outcome

    def _is_changed(self) -> bool:
        """Whether term, role or leader are others than was told; they are told now."""
        raft = self.raft
        is_same = raft.term == self.told_term and raft.role == self.told_role
        if is_same and raft.leader == self.told_leader:
            return False
        self.told_term = raft.term
        self.told_role = raft.role
        self.told_leader = raft.leader
        return True

    def _served(self) -> list[ReadAnswer]:
        """The reads for which enough is applied."""
        if not self.answers:
            return []
        applied = self.raft.applied
        served = [answer for answer in self.answers if answer.index <= applied]
        self.answers = [answer for answer in self.answers if answer.index > applied]
        return served
