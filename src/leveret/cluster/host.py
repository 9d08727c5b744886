"""All groups of one node, without I/O: dispatches input to groups, and collects their work.

    receive(messages)  of another node          turn()  work to write, sync and send; or None
    tick()             one tick has passed      done()  that work is done: apply, answer, go on
    propose, read, …   requests of clients to a group

One turn is in progress at a time. Input that arrives meanwhile is collected for the next turn: one
block and one sync for any number of groups (group commit). Only groups with input are processed,
and only groups that are awake get ticks.

The leader of an idle group puts it to sleep (`leveret.cluster.raft.sleep`). From then on its
members rely on the leases of nodes (`leveret.cluster.lease`). A member wakes up:

- by a message that asks it for something, or has a later term; by a request of any client;
- as follower: if the lease of its leader's node is lost, or that node has restarted;
- as leader: if the remaining leases are no majority, or a member has restarted.

The last two can happen to thousands of groups at once. They wait in line, and each tick wakes at
most `wakes_max` of them.

The caller that drives a host owns the clock, the disk and the network. A failed sync ends the node.
So does a failed assertion: a member that breaks Raft's rules must stop.
"""

from mypy_extensions import i64

from leveret.cluster.errors import (
    UnknownGroupError,
)
from leveret.cluster.group import Group
from leveret.cluster.host_config import HostConfig
from leveret.cluster.lease import RESTARTED, Leases
from leveret.cluster.machine import Machine
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import NOBODY, Entry
from leveret.cluster.raft.messages import COMMIT, NODE_HEARTBEAT, SLEEP, WAKE, Message, is_reply
from leveret.cluster.raft.rng import Rng
from leveret.cluster.raft.state import LEADER
from leveret.cluster.raft.stored import Stored
from leveret.cluster.turn import HostTurn, Outcome

_SEEDS: i64 = 1 << 30


class Host:
    """The groups of one node; see the module."""

    def __init__(
        self, node: i64, incarnation: i64, seed: i64, config: HostConfig | None = None
    ) -> None:
        """`incarnation` is over 0 and grows with every start of the node."""
        self.node: i64 = node
        self.config = HostConfig() if config is None else config
        self.config.check()
        self.leases = Leases(
            node, incarnation, self.config.heartbeat_ticks, self.config.lease_ticks
        )
        self.groups: dict[int, Group] = {}
        self._rng = Rng(seed)
        self._awake: dict[int, Group] = {}  # those that time goes on for
        self._asleep: dict[int, Group] = {}  # all others
        self._waking: dict[int, bool] = {}  # sleepers to be woken, in this order
        self._touched: dict[int, Group] = {}  # those that may have something to do
        self._heartbeats: list[Message] = []  # to other nodes, of no group
        self._under_way: HostTurn | None = None
        # How often groups fell asleep and were woken
        self.sleeps: i64 = 0
        self.wakes: i64 = 0

    # Groups

    def add_group(
        self, group: i64, stored: Stored, machine: Machine, config: Config | None = None
    ) -> None:
        """Host a member, from what its disk has; the machine begins from the stored snapshot."""
        assert group not in self.groups
        if config is None:
            config = self.config.group(self.node, group)
        assert config.node == self.node and config.group == group
        raft = Raft(config, stored, self._rng.below(_SEEDS))
        raft.incarnation = self.leases.incarnation
        # A node may begin with thousands of groups: they are woken as if their leaders were lost.
        raft.is_asleep = True
        if stored.snapshot is not None:
            machine.restore(stored.snapshot.state)
        for node in raft.log.members().everyone():
            self.leases.meet(node)
        added = Group(raft, machine)
        self.groups[group] = added
        self._asleep[group] = added
        self._waking[group] = True
        self._touched[group] = added

    def remove_group(self, group: i64) -> None:
        """Host it no more, at once; what it still has under way is dropped."""
        del self.groups[group]
        self._awake.pop(group, None)
        self._asleep.pop(group, None)
        self._waking.pop(group, None)
        self._touched.pop(group, None)

    def forget_node(self, node: i64) -> None:
        """Heartbeat no more to a node that has left the cluster."""
        self.leases.forget(node)
        self._on_lost(node)

    def awake_count(self) -> i64:
        return len(self._awake)

    def _require(self, number: i64) -> Group:
        """The group of a request, which wakes it."""
        group = self._find(number)
        raft = group.raft
        if raft.is_drowsy or raft.is_asleep:
            self._wake(group)
            raft.call_leader()
        self._touched[number] = group
        return group

    def _find(self, number: i64) -> Group:
        group = self.groups.get(number)
        if group is None:
            raise UnknownGroupError(number)
        return group

    # Inputs

    def receive(self, messages: list[Message]) -> None:
        """The messages of one frame. Of groups that are not here they are dropped."""
        for message in messages:
            if message.kind == NODE_HEARTBEAT:
                self._on_node_heartbeat(message)
                continue
            group = self.groups.get(message.group)
            if group is not None:
                self._step(group, message)

    def _step(self, group: Group, message: Message) -> None:
        raft = group.raft
        if (raft.is_asleep or raft.is_drowsy) and _wakes(raft, message):
            self._wake(group)
            if message.source != raft.leader:
                raft.call_leader()
        if message.kind == SLEEP:
            # A late SLEEP of a leader that has restarted since would never be followed by a WAKE.
            raft.may_sleep = self.leases.holds(message.source, message.context)
        raft.step(message)
        if message.kind == SLEEP and message.source == raft.leader:
            group.leader_incarnation = message.context
        self._sort(group)
        self._touched[group.number] = group

    def _on_node_heartbeat(self, message: Message) -> None:
        node = message.source
        if self.leases.on_heartbeat(message) != RESTARTED:
            return
        for number, group in self._asleep.items():
            raft = group.raft
            if raft.leader == node or (raft.role == LEADER and raft.log.members().has(node)):
                self._waking[number] = True

    def tick(self) -> None:
        """A tick of the edge's clock."""
        for node in self.leases.tick():
            self._on_lost(node)
        heartbeats = self.leases.heartbeats()
        if heartbeats:
            self._heartbeats = heartbeats  # what a slow disk has held back is of no use any more
        self._wake_some()
        fallen: list[Group] = []
        for number, group in self._awake.items():
            raft = group.raft
            if raft.role == LEADER and not raft.is_drowsy:
                self._maybe_sleep(group)
            if not raft.is_asleep:
                raft.tick()
            if raft.is_asleep:
                fallen.append(group)
            if raft.has_work():
                self._touched[number] = group
        for group in fallen:
            self._sort(group)

    # Sleep

    def _maybe_sleep(self, group: Group) -> None:
        """Put a group to sleep in which nothing has happened for long, if all its nodes live."""
        raft = group.raft
        if not raft.is_quiet():
            group.quiet_ticks = 0
            return
        group.quiet_ticks += 1
        if group.quiet_ticks < self.config.sleep_ticks:
            return
        group.quiet_ticks = 0
        for node in raft.log.members().everyone():
            if not self.leases.is_alive(node):
                return
        raft.begin_sleep()

    def _on_lost(self, node: i64) -> None:
        """A node is not heard of any more."""
        for number, group in self._asleep.items():
            raft = group.raft
            if raft.leader == node or (raft.role == LEADER and not self._hears_quorum(raft)):
                self._waking[number] = True

    def _hears_quorum(self, raft: Raft) -> bool:
        """Whether the leases that hold are those of a majority."""
        count: i64 = 0
        for node in raft.log.members().voters:
            if self.leases.is_alive(node):
                count += 1
        return raft.has_quorum(count)

    def _wake_some(self) -> None:
        """Wake those that wait for it, so many at a time."""
        if not self._waking:
            return
        for number in list(self._waking)[: self.config.wakes_max]:
            del self._waking[number]
            group = self.groups[number]
            self._wake(group)
            if self.leases.is_alive(group.raft.leader):
                group.raft.call_leader()  # it has come back meanwhile, and may sleep
            self._touched[number] = group

    def _wake(self, group: Group) -> None:
        """Wake a group.

        A follower counts its silence from the last heartbeat of its leader's node. If that node is
        lost, the follower starts an election soon.
        """
        raft = group.raft
        silent_ticks: i64 = 0  # of a member that has just started
        if self.leases.holds(raft.leader, group.leader_incarnation):
            silent_ticks = self.leases.silent_ticks(raft.leader)
        elif raft.leader != NOBODY:
            silent_ticks = raft.config.election_ticks
        raft.wake(silent_ticks)
        self._sort(group)

    def _sort(self, group: Group) -> None:
        """Keep a group where its member is: awake or asleep."""
        number = group.number
        if group.raft.is_asleep:
            if self._awake.pop(number, None) is not None:
                self._asleep[number] = group
                group.has_slept = True
                self.sleeps += 1
        elif self._asleep.pop(number, None) is not None:
            self._waking.pop(number, None)
            self._awake[number] = group
            group.quiet_ticks = 0
            if group.has_slept:
                self.wakes += 1

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
        """Let the log of a group begin from its machine's present state; wakes nobody."""
        found = self._find(group)
        self._touched[group] = found
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
        touched = self._touched
        self._touched = {}
        for number, group in touched.items():
            if turn.size_bytes >= self.config.turn_bytes_max:
                self._touched[number] = group  # for the next one
                continue
            ready = group.raft.ready()
            if ready is not None:
                turn.add(number, ready)
        for target in turn.messages:
            self.leases.meet(target)
        for heartbeat in self._heartbeats:
            turn.send(heartbeat)
        self._heartbeats = []
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
            outcome = group.finish(ready)
            self._touched[number] = group
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes


def _wakes(raft: Raft, message: Message) -> bool:
    """Whether a message asks something of a member that sleeps, or of a leader about to."""
    if message.term > raft.term:
        return True
    kind = message.kind
    if kind == WAKE:
        # A removed member that does not know of its removal may send WAKE for ever: ignore it.
        return raft.log.members().has(message.source)
    # SLEEP, COMMIT and replies ask for nothing, so they do not wake a member.
    return kind != SLEEP and kind != COMMIT and not is_reply(kind)
