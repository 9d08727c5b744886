"""All groups of one node, without I/O: what comes in goes to its group, what is to be done comes
out once for all of them.

    receive(messages)  of another node          turn()  what to write, sync and send; or None
    tick()             time goes on             done()  that is done: apply, answer, go on
    propose, read, …   what clients want of a group

One turn is under way at a time. What comes meanwhile collects, and is one block and one sync of the
next turn, for as many groups as there are: group commit. Only groups that something has happened
to are looked at.

The edge that drives a host owns the clock, the disk and the network. A sync that fails ends the
node. An assertion that fails does too: a member that breaks Raft's rules must stop.
"""

from mypy_extensions import i64

from leveret.cluster.host_config import HostConfig
from leveret.cluster.lease import Leases
from leveret.cluster.machine import Effect, Machine
from leveret.cluster.raft.chance import Chance
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import COMMAND, EMPTY, NOBODY, Entry
from leveret.cluster.raft.messages import NODE_BEAT, Message
from leveret.cluster.raft.ready import Answer, Ready
from leveret.cluster.raft.state import LEADER
from leveret.cluster.raft.stored import Stored
from leveret.cluster.turn import HostTurn, Outcome
from leveret.errors import UnknownGroup

_SEEDS: i64 = 1 << 30


class Group:
    """One group on this node: its member, its machine, and what was told of them."""

    def __init__(self, raft: Raft, machine: Machine) -> None:
        self.number: i64 = raft.group
        self.raft = raft
        self.machine = machine
        self.resumed_term: i64 = 0  # in which the machine was told that it leads
        self.answers: list[Answer] = []  # wait until what they need is applied
        # As the last outcome said
        self.told_term: i64 = raft.term
        self.told_role: i64 = raft.role
        self.told_leader: i64 = NOBODY


class Host:
    """The groups of one node; see the module."""

    def __init__(
        self, node: i64, incarnation: i64, seed: i64, config: HostConfig | None = None
    ) -> None:
        """`incarnation` is over 0 and grows with every start of the node."""
        self.node: i64 = node
        self.config = HostConfig() if config is None else config
        self.leases = Leases(node, incarnation, self.config.beat_ticks, self.config.lease_ticks)
        self.groups: dict[int, Group] = {}
        self._chance = Chance(seed)
        self._awake: dict[int, Group] = {}  # those that time goes on for
        self._touched: dict[int, Group] = {}  # those that may have something to do
        self._beats: list[Message] = []  # to other nodes, of no group
        self._under_way: HostTurn | None = None

    # Groups

    def add_group(
        self, group: i64, stored: Stored, machine: Machine, config: Config | None = None
    ) -> None:
        """Host a member, from what its disk has; the machine begins from the stored snapshot."""
        assert group not in self.groups
        if config is None:
            config = self.config.group(self.node, group)
        assert config.node == self.node and config.group == group
        raft = Raft(config, stored, self._chance.below(_SEEDS))
        if stored.snapshot is not None:
            machine.restore(stored.snapshot.state)
        added = Group(raft, machine)
        self.groups[group] = added
        self._awake[group] = added
        self._touched[group] = added

    def remove_group(self, group: i64) -> None:
        """Host it no more, at once; what it still has under way is dropped."""
        del self.groups[group]
        self._awake.pop(group, None)
        self._touched.pop(group, None)

    def _require(self, number: i64) -> Group:
        group = self.groups.get(number)
        if group is None:
            raise UnknownGroup(number)
        self._touched[number] = group
        return group

    # Inputs

    def receive(self, messages: list[Message]) -> None:
        """The messages of one frame. Of groups that are not here they are dropped."""
        for message in messages:
            if message.kind == NODE_BEAT:
                self.leases.on_beat(message)
                continue
            group = self.groups.get(message.group)
            if group is not None:
                group.raft.step(message)
                self._touched[message.group] = group

    def tick(self) -> None:
        """A tick of the edge's clock."""
        self.leases.tick()
        self._beats.extend(self.leases.beats())
        for number, group in self._awake.items():
            group.raft.tick()
            if group.raft.has_work():
                self._touched[number] = group

    def propose(self, group: i64, commands: list[bytes]) -> i64:
        """Take commands into the log of a group; the index of the first."""
        return self._require(group).raft.propose(commands)

    def read(self, group: i64, number: i64) -> None:
        """Begin a read; a later outcome answers it by this number, or nothing does."""
        self._require(group).raft.read(number)

    def transfer(self, group: i64, target: i64) -> None:
        self._require(group).raft.transfer(target)

    def add_non_voter(self, group: i64, node: i64) -> i64:
        return self._require(group).raft.add_non_voter(node)

    def promote(self, group: i64, node: i64) -> i64:
        return self._require(group).raft.promote(node)

    def remove(self, group: i64, node: i64) -> i64:
        """Let a node go from a group."""
        return self._require(group).raft.remove(node)

    def compact(self, group: i64) -> None:
        """Let the log of a group begin from its machine's present state."""
        found = self._require(group)
        found.raft.compact(found.machine.snapshot(), found.machine.live_indexes())

    def entry(self, group: i64, index: i64) -> Entry | None:
        """An entry of a group's log: the bodies of its messages stay there."""
        found = self.groups.get(group)
        return None if found is None else found.raft.log.entry(index)

    # Turns

    def turn(self) -> HostTurn | None:
        """What is to be done now, if anything and if the last turn is done."""
        if self._under_way is not None:
            return None
        turn = HostTurn()
        for number, group in self._touched.items():
            ready = group.raft.ready()
            if ready is not None:
                turn.add(number, ready)
        self._touched = {}
        for target in turn.messages:
            self.leases.meet(target)
        for beat in self._beats:
            turn.send(beat)
        self._beats = []
        if turn.is_empty():
            return None
        self._under_way = turn
        return turn

    def done(self, turn: HostTurn) -> list[Outcome]:
        """All of it is written, synced and sent; what it has brought, by group."""
        assert turn is self._under_way
        self._under_way = None
        outcomes: list[Outcome] = []
        for number, ready in turn.readies.items():
            group = self.groups.get(number)
            if group is None:
                continue
            effects = self._finish(group, ready)
            self._touched[number] = group
            outcome = _outcome(group, effects)
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def _finish(self, group: Group, ready: Ready) -> list[Effect]:
        raft = group.raft
        snapshot = ready.snapshot
        if snapshot is not None and ready.is_received:
            group.machine.restore(snapshot.state)
        effects: list[Effect] = []
        for entry in ready.committed:
            _apply(group, entry, effects)
        group.answers.extend(ready.answers)
        raft.advance(ready)
        return effects


def _apply(group: Group, entry: Entry, effects: list[Effect]) -> None:
    """Apply an entry. Effects are performed by the leader, and of its own term only: those of
    earlier ones may have been performed, and answered, by others; `resume` repeats what is due.
    """
    raft = group.raft
    found: list[Effect] = []
    if entry.kind == COMMAND:
        found = group.machine.apply(entry.index, entry.data)
    if raft.role != LEADER or entry.term != raft.term:
        return
    if entry.kind == EMPTY and group.resumed_term != raft.term:
        group.resumed_term = raft.term
        found = group.machine.resume()
    effects.extend(found)


def _outcome(group: Group, effects: list[Effect]) -> Outcome | None:
    """What there is to tell of a group; None if it is nothing."""
    raft = group.raft
    outcome = Outcome(group.number, raft.term, raft.role, raft.leader)
    outcome.effects = effects
    if raft.term != group.told_term or raft.role != group.told_role:
        outcome.is_changed = True
    if raft.leader != group.told_leader:
        outcome.is_changed = True
    group.told_term = raft.term
    group.told_role = raft.role
    group.told_leader = raft.leader
    if group.answers:
        outcome.answers = [answer for answer in group.answers if answer.index <= raft.applied]
        group.answers = [answer for answer in group.answers if answer.index > raft.applied]
    if effects or outcome.answers or outcome.is_changed:
        return outcome
    return None
