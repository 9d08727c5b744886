"""Create a cluster, add nodes to it, promote them, and carry out the commands of operators.

A cluster begins with one node. It is the listed node whose name sorts first, once all listed nodes
are connected, new, and list the same peers. A node that already has data of its own begins a
cluster at once. The leader then adds each new node that knows the secret as a non-voter, tells it
its number, and promotes it when it has caught up. A member of a cluster never creates another one,
so two halves of a network cannot create two clusters.

Each tick tries every step again, so that a lost message delays a step and never stops it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Final, Protocol

from leveret.cluster.errors import BusyError, ChangeRefusedError, ClusterError, NotLeaderError
from leveret.cluster.handshake import CLUSTER_BYTES, Card, read_card
from leveret.cluster.host import RaftHost
from leveret.cluster.links import Links
from leveret.cluster.peers import Answer
from leveret.cluster.raft.fields import Reader
from leveret.cluster.raft.members import (
    MEMBERS_MAX,
    NOBODY,
    NUMBER_MAX,
    Member,
    Members,
    decode_members,
    encode_members,
)
from leveret.cluster.raft.progress import REPLICATE
from leveret.cluster.raft.state import LEADER
from leveret.errors import ProtocolError

log = logging.getLogger(__name__)

# Requests between nodes: payload, sender and receiver
ADMIT: Final = 1  # cluster:16 number:u32 members       the leader to a node that it has added
REMOVE: Final = 2  # name                               any node to the leader, for an operator
LEAD: Final = 3  # name; empty: the best node         any node to the leader, for an operator
NEWCOMER: Final = 4  # next_number:u32 card             a follower to the leader, about a new node
DRAIN: Final = 5  # empty                               any node to the one to be drained
REVIVE: Final = 6  # empty                              any node to a drained one
REPORT: Final = 7  # see `leveret.cluster.reports`      a follower to the leader
MAY_LEAD: Final = 8  # empty                            the leader to a node that shall lead

ADMIT_S: Final = 5.0
NEWCOMER_S: Final = 2.0  # how often a follower tells the leader about a new node
COMMAND_S: Final = 15.0  # an operator gets an answer within this; it includes the next three
FREE_S: Final = 4.0  # wait for the end of another change
DONE_S: Final = 8.0  # wait until the change is committed
MAY_LEAD_S: Final = 2.0  # wait for the consent of the node that shall lead
RETRY_S: Final = 0.05
_NUMBER_BYTES: Final = 4


class FormingHost(Protocol):
    """The node whose cluster is formed."""

    links: Links
    chance: Random
    is_drained: bool

    @property
    def host(self) -> RaftHost | None:
        """Return the host of the member; None on a new node."""

    def card(self) -> Card:
        """Return the card of this node."""

    def become_member(
        self, cluster: bytes, number: int, members: Members, done: Callable[[], None]
    ) -> None:
        """Write the identity of this node, and begin as a member; then call `done`."""

    def name_of(self, number: int) -> str:
        """Return the name of a member; empty if it is not known."""

    def set_drained(self, is_drained: bool) -> None:
        """Let this node lead only if no other one can, or as usual."""


class Forming:
    """Forms the cluster of one node."""

    def __init__(self, node: FormingHost) -> None:
        self._node = node
        self._is_becoming = False  # the identity is being written
        self._admitted: set[tuple[str, int]] = set()  # names and incarnations that know it
        # New nodes that followers have reported to this leader, and when.
        self._newcomers: dict[str, tuple[float, Card]] = {}
        self._told_s: dict[str, float] = {}  # when this follower reported a new node
        self._numbers: dict[bytes, int] = {}  # of the members, by uid
        self._left: set[int] = set()  # incarnations of nodes that were removed
        self._tasks: set[asyncio.Task[None]] = set()
        # Tasks that wait for a commit, or for the end of a hand-over.
        self._waiting: list[tuple[Callable[[RaftHost], bool], asyncio.Future[None]]] = []

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def on_tick(self) -> None:
        """Create the cluster, add a node or promote one, if it can be done now."""
        host = self._node.host
        if host is None:
            self._maybe_create_cluster()
            return
        self.wake_waiting(host)
        if not host.is_leading:
            self._tell_leader(host)
        else:
            try:
                if not self._add_new_node(host):
                    self._promote(host)
            except (BusyError, ChangeRefusedError, NotLeaderError) as reason:
                log.debug("the members cannot change now: %s", reason)

    def on_members(self, members: Members) -> None:
        """Note which connected nodes have left.

        The card of a link is as old as the link. A member that was new at that time still looks new
        when it has been removed, and must not be added again. But it may be added again if its
        addition was undone: a later leader did not have that block.
        """
        gone = {uid for uid, number in self._numbers.items() if _has_left(members, uid, number)}
        self._numbers = {member.uid: number for number, member in members.members.items()}
        cards = self._node.links.cards().values()
        self._left |= {card.incarnation for card in cards if card.uid in gone}

    # Creating a cluster

    def waiting_for(self) -> str:
        """Return what a new node waits for, as a sentence."""
        me = self._node.card()
        if self._node.host is not None:
            return ""
        cards = self._node.links.cards()
        old = [name for name in me.peers if name in cards and cards[name].cluster]
        if old:
            return f"it waits to be added to the cluster of the nodes {', '.join(old)}"
        missing = [name for name in me.peers if name not in cards and name != me.name]
        if missing:
            return f"it waits for connections with the nodes {', '.join(missing)}"
        if me.name != min(me.peers):
            return f"it waits for node {min(me.peers)}, which creates the cluster"
        return ""

    def _maybe_create_cluster(self) -> None:
        if not self._is_becoming and not self.waiting_for():
            self._is_becoming = True
            self._start(self.create_cluster())

    async def create_cluster(self) -> None:
        """Make a cluster of this node alone, and wait until that is on disk."""
        me = self._node.card()
        cluster = self._node.chance.getrandbits(8 * CLUSTER_BYTES).to_bytes(CLUSTER_BYTES, "big")
        log.info("node %s creates the cluster %s", me.name, cluster.hex())
        members = Members([Member(1, me.name, me.uid, me.address.encode())], [])
        written = asyncio.Event()
        self._become(cluster, 1, members, written.set)
        await written.wait()

    def _become(
        self, cluster: bytes, number: int, members: Members, done: Callable[[], None]
    ) -> None:
        self._is_becoming = True
        self._node.become_member(cluster, number, members, done)

    # Adding nodes

    def _add_new_node(self, host: RaftHost) -> bool:
        """Add a new node as a non-voter; return True if one is being added."""
        members = host.raft.log.members()
        now_s = asyncio.get_running_loop().time()
        known = {
            name: card
            for name, (told_s, card) in self._newcomers.items()
            if now_s - told_s < 2 * NEWCOMER_S
        }
        known.update(self._node.links.cards())
        for name, card in known.items():
            if card.cluster:
                continue
            member = members.named(name)
            if member is None:
                if card.incarnation in self._left:
                    continue
                self._propose_member(host, card)
                return True
            is_told = (name, card.incarnation) in self._admitted
            if member.uid == card.uid and not is_told and self._node.links.can_talk(name):
                if host.raft.log.members_index() <= host.committed:
                    self._admitted.add((name, card.incarnation))
                    self._start(self._admit(host, name, card.incarnation, member))
        return False

    def _tell_leader(self, host: RaftHost) -> None:
        """Tell the leader about new nodes: it may not know their addresses, nor they its own."""
        leader = self._node.name_of(int(host.raft.leader))
        members = host.raft.log.members()
        now_s = asyncio.get_running_loop().time()
        if not self._node.links.can_talk(leader):
            return
        for name, card in self._node.links.cards().items():
            is_member = bool(card.cluster) or members.named(name) is not None
            is_new = not is_member and card.incarnation not in self._left
            if is_new and now_s - self._told_s.get(name, -NEWCOMER_S) >= NEWCOMER_S:
                self._told_s[name] = now_s
                number = int(members.next_number).to_bytes(_NUMBER_BYTES, "big")
                self._start(self._tell(leader, number + card.encode()))

    async def _tell(self, leader: str, payload: bytes) -> None:
        with contextlib.suppress(ClusterError):  # the next tick reports it again
            await self._node.links.request(leader, NEWCOMER, payload, NEWCOMER_S)

    def _on_newcomer(self, payload: bytes, answer: Answer) -> None:
        host = self._node.host
        try:
            card = read_card(Reader(payload, _NUMBER_BYTES, len(payload)))
        except ProtocolError as fault:
            answer(False, f"the card of a new node cannot be read: {fault}")
            return
        # A follower whose members are old may take a node for new that has joined and left since.
        number = int.from_bytes(payload[:_NUMBER_BYTES], "big")
        if host is not None and host.is_leading:
            if number == host.raft.log.members().next_number and len(self._newcomers) < MEMBERS_MAX:
                self._newcomers[card.name] = asyncio.get_running_loop().time(), card
        answer(True, "")

    def _propose_member(self, host: RaftHost, card: Card) -> None:
        number = int(host.raft.log.members().next_number)
        if number > NUMBER_MAX:
            raise ChangeRefusedError(f"all {NUMBER_MAX} numbers of members were given")
        member = Member(number, card.name, card.uid, card.address.encode())
        host.propose(host.raft.plan_add(member))
        self._newcomers.clear()  # followers report all of them again
        log.info("node %s joins the cluster as number %d", card.name, number)

    async def _admit(self, host: RaftHost, name: str, incarnation: int, member: Member) -> None:
        """Tell a new node its cluster and its number."""
        members = encode_members(host.raft.log.members())
        number = int(member.number).to_bytes(_NUMBER_BYTES, "big")
        payload = self._node.card().cluster + number + members
        try:
            await self._node.links.request(name, ADMIT, payload, ADMIT_S)
        except ClusterError as reason:
            log.info("node %s was not told that it may join: %s", name, reason)
            self._admitted.discard((name, incarnation))

    def _on_admit(self, payload: bytes, answer: Answer) -> None:
        me = self._node.card()
        cluster, rest = payload[:CLUSTER_BYTES], payload[CLUSTER_BYTES:]
        number = int.from_bytes(rest[:_NUMBER_BYTES], "big")
        try:
            members = decode_members(rest[_NUMBER_BYTES:])
        except ProtocolError as fault:
            answer(False, f"node {me.name} cannot read the list of members: {fault}")
            return
        mine = members.named(me.name)
        if self._node.host is not None and (me.cluster, me.number) == (cluster, number):
            answer(True, "")
        elif self._node.host is not None or self._is_becoming:
            answer(False, f"node {me.name} belongs to a cluster already")
        elif mine is None or mine.uid != me.uid or mine.number != number:
            answer(False, f"the list of members names another node {me.name}")
        else:
            log.info("node %s joins the cluster %s", me.name, cluster.hex())
            self._become(cluster, number, members, lambda: answer(True, ""))

    def _promote(self, host: RaftHost) -> None:
        """Make a non-voter a voter, once it is known to follow the log."""
        raft = host.raft
        for number in raft.log.members().non_voters:
            progress = raft.progress.get(number)
            if progress is None or progress.state != REPLICATE or progress.match == 0:
                continue
            host.propose(raft.plan_promote(number))
            log.info("node %s has caught up and votes from now on", self._node.name_of(number))
            return

    # Commands

    def on_request(self, kind: int, payload: bytes, answer: Answer) -> None:
        """Handle a request of another node."""
        if kind == ADMIT:
            self._on_admit(payload, answer)
        elif kind == NEWCOMER and len(payload) > _NUMBER_BYTES:
            self._on_newcomer(payload, answer)
        elif kind in (REMOVE, LEAD):
            self._start(
                self._serve(self._lead_or_remove(kind, payload.decode(errors="replace")), answer)
            )
        elif kind in (DRAIN, REVIVE):
            self._start(self._serve(self._set_drained(kind == DRAIN), answer))
        elif kind == MAY_LEAD:
            self._on_may_lead(answer)
        else:
            answer(False, f"node {self._node.card().name} does not know this request: upgrade it")

    async def _serve(self, work: Coroutine[None, None, str], answer: Answer) -> None:
        try:
            text = await work
        except ClusterError as reason:
            answer(False, str(reason))
        else:
            answer(True, text)

    async def command(self, kind: int, name: str) -> str:
        """Let the leader carry out a command; return a sentence, or raise `ClusterError`."""
        host = self._node.host
        if host is None:
            raise ClusterError(f"this node is in no cluster: {self.waiting_for()}")
        if host.is_leading:
            return await self._lead_or_remove(kind, name)
        leader = self._node.name_of(int(host.raft.leader))
        if not leader or leader == self._node.card().name:
            raise ClusterError("no node leads at the moment: try again")
        return await self._node.links.request(leader, kind, name.encode(), COMMAND_S)

    async def command_node(self, kind: int, name: str) -> str:
        """Let a node be drained or revived; return a sentence, or raise `ClusterError`."""
        host = self._node.host
        if host is None:
            raise ClusterError(f"this node is in no cluster: {self.waiting_for()}")
        self._number_of(host, name)
        if name == self._node.card().name:
            return await self._set_drained(kind == DRAIN)
        return await self._node.links.request(name, kind, b"", COMMAND_S)

    async def _set_drained(self, is_drained: bool) -> str:
        """Drain or revive this node. If it leads, it is drained once another node takes over."""
        host = self._node.host
        name = self._node.card().name
        if host is None:
            raise ClusterError(f"node {name} is in no cluster: {self.waiting_for()}")
        if not is_drained:
            self._node.set_drained(False)
            return f"node {name} may lead again"
        if host.raft.role == LEADER:
            target = int(host.raft.best_successor())
            if target == NOBODY or host.raft.is_member_drained(target):
                raise ClusterError(
                    f"node {name} leads, and no other node that votes is alive and not drained: "
                    "start or revive another node first"
                )
            await self._hand_over(host, target)
        self._node.set_drained(True)
        return f"node {name} is drained: it does not lead until it is revived or started again"

    async def _lead_or_remove(self, kind: int, name: str) -> str:
        host = self._node.host
        if host is None or not host.is_leading:
            leader = "" if host is None else self._node.name_of(int(host.raft.leader))
            raise ClusterError(f"node {leader} leads" if leader else "no node leads: try again")
        if kind == LEAD:
            return await self._lead(host, name)
        return await self._remove(host, name)

    def _number_of(self, host: RaftHost, name: str) -> int:
        member = host.raft.log.members().named(name)
        if member is None:
            names = sorted(member.name for member in host.raft.log.members().members.values())
            raise ClusterError(f"node {name} is no member; the members are {', '.join(names)}")
        return int(member.number)

    async def _remove(self, host: RaftHost, name: str) -> str:
        number = self._number_of(host, name)
        await self._when_free(lambda: host.propose(host.raft.plan_remove(number)))
        await self._wait(lambda now: not _has(now.raft.log.members_at(now.committed), number))
        return f"node {name} was removed from the cluster"

    async def _lead(self, host: RaftHost, name: str) -> str:
        if name == self._node.card().name:
            return f"node {name} leads already"
        target = self._number_of(host, name) if name else int(host.raft.best_successor())
        if target == NOBODY:
            raise ClusterError("no other node that votes is alive, so none can lead")
        if name:
            # Ask it: a heartbeat may not have told yet that it was drained or revived.
            await self._node.links.request(name, MAY_LEAD, b"", MAY_LEAD_S)
        return await self._hand_over(host, target)

    def _on_may_lead(self, answer: Answer) -> None:
        name = self._node.card().name
        if self._node.is_drained:
            answer(False, f"node {name} is drained: run `leveret ctl cluster revive {name}` first")
        else:
            answer(True, "")

    async def _hand_over(self, host: RaftHost, target: int) -> str:
        await self._when_free(lambda: host.transfer(target))
        await self._wait(lambda now: now.raft.transfer_target == NOBODY)
        name = self._node.name_of(target)
        if host.is_leading:
            raise ClusterError(f"node {name} did not take the lead in time: this node still leads")
        return f"node {name} takes the lead"

    async def _when_free(self, change: Callable[[], None]) -> None:
        """Begin a change as soon as no other change is under way."""
        last_s = asyncio.get_running_loop().time() + FREE_S
        while True:
            try:
                change()
                return
            except BusyError:
                if asyncio.get_running_loop().time() > last_s:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _wait(self, is_done: Callable[[RaftHost], bool]) -> None:
        """Wait for a condition, at most for as long as an operator waits for an answer."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = is_done, future
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(DONE_S):
                await future
        except TimeoutError:
            raise ClusterError("it is not done yet: no majority has answered in time") from None
        finally:
            self._waiting.remove(entry)

    def wake_waiting(self, host: RaftHost) -> None:
        """Wake the tasks whose condition holds now."""
        for is_done, future in self._waiting:
            if not future.done() and is_done(host):
                future.set_result(None)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _has_left(members: Members, uid: bytes, number: int) -> bool:
    """Return whether an earlier member was removed. Its number is not given again then."""
    if any(member.uid == uid for member in members.members.values()):
        return False
    return number < members.next_number and not members.has(number)


def _has(members: Members, number: int) -> bool:
    return members.has(number)
