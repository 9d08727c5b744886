"""The member of one node in the cluster: Raft, links to other nodes, and joining the cluster.

`ClusterMember` puts the parts together on one event loop: `RaftHost` hosts the member, `Links`
connects it with the others, `Forming` creates the cluster, adds nodes and promotes them. It has
no threads and no files: the owner gives it a log (`leveret.cluster.host` says which one when), and
a copier of directories. Time is that of the loop, and random numbers come from a given source, so
that a simulation can drive all of it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from leveret.cluster.admission import removed, require_welcome
from leveret.cluster.errors import ClusterError, LinkRefusedError
from leveret.cluster.forming import DRAIN, LEAD, REMOVE, REPORT, REVIVE, Forming
from leveret.cluster.handshake import LOST_DATA, NOT_LEADER, REMOVED, Card
from leveret.cluster.host import TICK_S, RaftHost
from leveret.cluster.host_owner import LeaderLog, MemberLog
from leveret.cluster.links import Links
from leveret.cluster.owner import DirectoryCopier, MemberOwner
from leveret.cluster.peers import PACE, Address, Answer, Pace, Tls, parse_address
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.members import NOBODY, Members, encode_members
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.stored import Stored
from leveret.cluster.relay import RelayHead
from leveret.cluster.reports import Reports
from leveret.cluster.status import (
    ClusterStatus,
    ContactTimes,
    describe_cluster,
    describe_members,
    describe_raft,
    why_led_no_more,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeSettings:
    """Name, addresses and secret of this node, from its options."""

    name: str
    address: str  # where others reach it, host:port; port 0: the one that it listens on
    peers: dict[str, Address]  # listed nodes by name, itself included
    secret: bytes
    format_min: int = 1  # formats of the log that this release can read and write
    format_max: int = 1


@dataclass(frozen=True)
class Directory:
    """Identity and Raft state that the data directory holds at the start."""

    uid: bytes
    stored: Stored
    cluster: bytes = b""  # empty: the node is new, or was alone
    number: int = 0
    has_data: bool = False  # it has the data of a node that ran alone


class ClusterMember:
    """One node of the cluster."""

    def __init__(
        self,
        settings: NodeSettings,
        directory: Directory,
        member_log: MemberLog,
        owner: MemberOwner,
        *,
        chance: Random,
        copier: DirectoryCopier | None = None,
        tls: Tls | None = None,
        pace: Pace = PACE,
        tick_s: float = TICK_S,
    ) -> None:
        self.chance = chance
        self.host: RaftHost | None = None  # None: the node is new
        self.is_drained = False  # until the process ends
        self._owner = owner
        self._copier = copier
        self._settings = settings
        self._stored = directory.stored
        self._member_log: MemberLog | None = member_log  # until there is a host
        self._tick_s = tick_s
        self._card = Card(
            name=settings.name,
            uid=directory.uid,
            address=settings.address,
            incarnation=chance.getrandbits(62),
            cluster=directory.cluster,
            number=directory.number,
            format_min=settings.format_min,
            format_max=settings.format_max,
            has_data=directory.has_data,
            peers=tuple(sorted(settings.peers)),
        )
        self._led_term = 0  # the term in which this node leads; 0: it does not
        self._names: dict[int, str] = {}  # by number, as messages came
        self._loop = asyncio.get_running_loop()
        self._contacts = ContactTimes(self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False
        self.links = Links(self, settings.secret, chance=chance, tls=tls, pace=pace)
        self.forming = Forming(self)
        self.reports = Reports(self.links, self._loop)

    # Start and end

    async def start(self, host: str, port: int) -> None:
        """Listen for other nodes, and begin. A node that was alone creates its cluster before."""
        if self._card.cluster:
            self._begin_member(self._stored)
        elif self._card.has_data:
            await self.forming.create_cluster()
        await self.links.start(host, port)
        if self._settings.address.endswith(":0"):  # known only now
            address = f"{self._settings.address[:-2]}:{self.links.port}"
            self._card = replace(self._card, address=address)
        self.links.set_peers(self._peers())
        self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    async def stop(self) -> None:
        """Close all connections in order. The owner may hand the lead over before."""
        self._stop_parts()
        await self.links.stop()

    def abort(self) -> None:
        """Close all connections at once."""
        self._stop_parts()
        self.links.abort()

    def fail(self, reason: str) -> None:
        """Stop after a fault, such as a failed sync."""
        fail = self.on_fault if self.host is None else self.host.fail
        fail(reason)

    def _stop_parts(self) -> None:
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self.host is not None:
            self.host.has_ended = True
        self.forming.stop()
        self.reports.stop()

    def _begin_member(self, stored: Stored) -> None:
        raft = Raft(self.make_config(), stored, self.chance.getrandbits(30))
        raft.set_drained(self.is_drained)
        member_log, self._member_log = self._member_log, None
        self.host = RaftHost(
            raft, member_log, self, self._loop.time, self._loop.call_later, self._tick_s
        )
        self.on_members()

    def make_config(self) -> Config:
        """Return the settings of the member. Tests change them."""
        return Config(self._card.number)

    def _on_tick(self) -> None:
        self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        leader = self._other_leader()
        if self.host is not None:
            if self.links.is_receiving(leader):
                self.host.on_receiving()
            self.host.tick()
        if not self._has_ended:
            self.forming.on_tick()
            self.reports.on_tick(leader)

    def become_member(
        self, cluster: bytes, number: int, members: Members, done: Callable[[], None]
    ) -> None:
        """Write the identity of this node, and begin as a member; then call `done`."""
        assert self.host is None
        assert self._member_log is not None
        is_founder = list(members.members) == [number]

        def written() -> None:
            if self._has_ended:
                return
            self._card = replace(self._card, cluster=cluster, number=number)
            if is_founder:
                self._stored.members = [(0, members)]
            self._names.update((int(one.number), one.name) for one in members.members.values())
            self._begin_member(self._stored)
            for name in self.links.cards():
                if members.named(name) is None:
                    self.links.reconnect(name)  # its links know this node as a new one
            done()

        self._member_log.write_identity(cluster, number, encode_members(members), written)

    def install(self, stored: Stored, member_log: MemberLog) -> None:
        """Begin again with a copy of the leader's directory; `may_install` was asked before."""
        assert self.host is not None
        stored.hard = self.host.raft.hard.copy()
        self.host.has_ended = True
        self._member_log = member_log
        self._begin_member(stored)

    def may_install(self, index: int, term: int) -> bool:
        """Return True if a copy that ends with this committed block may replace the log."""
        return self.host is not None and self.host.raft.may_install(index, term)

    # The log

    def append(self, index: int, kind: int, data: bytes) -> None:
        """Take a block of the leader's log; see `RaftHost.append`."""
        self._require_host().append(index, kind, data)

    def on_written(self, index: int) -> None:
        """Note that the leader's log has synced its blocks up to this one."""
        self._require_host().on_written(index)

    def forget(self, base_index: int) -> None:
        """Note that blocks up to this one are in no log file any more."""
        self._require_host().forget(base_index)

    def begin_again(self, stored: Stored, member_log: MemberLog) -> None:
        """Follow with this log, after `on_follow`, as after a restart.

        Only blocks on disk count: the log of a leader may have ended before it had written all
        blocks that it gave to this member.
        """
        before = self._require_host()
        if self._has_ended:
            return
        before.has_ended = True
        self._member_log = member_log
        self._begin_member(stored)
        raft, host = before.raft, self._require_host()
        leader = NOBODY if raft.leader == raft.node else raft.leader
        host.follow(max(raft.term, host.raft.term), leader)

    def lead_with(self, leader_log: LeaderLog) -> None:
        """Lead with this log, after `on_lead`. Its next block is `next_index`."""
        self._require_host().lead_with(leader_log)

    @property
    def may_append(self) -> bool:
        """True if the leader's log may make blocks: this node leads and is not handing over."""
        return self.host is not None and self.host.may_append

    @property
    def next_index(self) -> int:
        return int(self._require_host().raft.log.last_index) + 1

    @property
    def term(self) -> int:
        return int(self._require_host().raft.term)

    def _require_host(self) -> RaftHost:
        if self.host is None:
            raise ClusterError("this node is in no cluster yet")
        return self.host

    # Commands of operators, at any node

    async def remove(self, name: str) -> str:
        """Remove a node from the cluster; return a sentence, or raise `ClusterError`."""
        return await self.forming.command(REMOVE, name)

    async def lead(self, name: str) -> str:
        """Let a node lead; return a sentence, or raise `ClusterError`."""
        return await self.forming.command(LEAD, name)

    async def drain(self, name: str) -> str:
        """Let a node lead only if no other one can; return a sentence, or raise `ClusterError`."""
        return await self.forming.command_node(DRAIN, name)

    async def revive(self, name: str) -> str:
        """Let a drained node lead again; return a sentence, or raise `ClusterError`."""
        return await self.forming.command_node(REVIVE, name)

    def set_drained(self, is_drained: bool) -> None:
        """Drain or revive this node."""
        self.is_drained = is_drained
        if self.host is not None:
            self.host.raft.set_drained(is_drained)

    async def hand_over(self) -> str:
        """Let the best other node lead, if this one leads; return a sentence."""
        if self.host is None or not self.host.is_leading:
            return "this node does not lead"
        return await self.forming.command(LEAD, "")

    # Events of the links (`LinksOwner`)

    def card(self) -> Card:
        """Return the card of this node, as of now."""
        return self._card

    def require_welcome(self, card: Card, *, is_relay: bool) -> None:
        """Raise `LinkRefusedError` if a node is no member and may not become one.

        Only a leader takes relayed clients, from its election on.
        """
        host = self.host
        if host is None:
            require_welcome(self._card, None, card)
        else:
            self._require_member(host, card)
        if is_relay and not self._owner.takes_relays():
            sentence = f"node {self._card.name} does not lead"
            raise LinkRefusedError(NOT_LEADER, sentence, by_peer=False)

    def _require_member(self, host: RaftHost, card: Card) -> None:
        """Raise unless the members in force, or the committed ones, accept a node.

        A change that is not committed may be undone, so it excludes no node.
        """
        here = self.links.cards().get(card.name)
        try:
            require_welcome(self._card, host.raft.log.members(), card)
        except LinkRefusedError:
            require_welcome(self._card, host.raft.log.members_at(host.raft.commit), card, here)

    def on_connected(self, peer: str, card: Card) -> None:
        self._contacts.note_connected(peer)
        if card.number:
            self._names[card.number] = peer

    def on_lost(self, peer: str) -> None:
        self._contacts.note_lost(peer, self._loop.time())
        if self._copier is not None:
            self._copier.on_lost(peer)
        number = self._number_of(peer)
        if self.host is not None and number:
            self.host.on_link_lost(number)

    def on_messages_lost(self, peer: str) -> None:
        number = self._number_of(peer)
        if self.host is not None and number:
            self.host.on_messages_lost(number)

    def on_data_lost(self, peer: str) -> None:
        if self._copier is not None:
            self._copier.on_lost(peer)

    def on_refused(self, peer: str, code: int, sentence: str) -> None:
        self._contacts.note_refusal(peer, sentence, self._loop.time())
        if code == REMOVED and self.host is not None and not self._has_ended:
            self.host.fail(sentence)

    def on_messages(self, peer: str, messages: list[Message], size_bytes: int) -> None:
        host = self.host
        if host is None:
            return  # it will learn soon that it is a member
        source = int(messages[0].source)
        member = host.raft.log.members().members.get(source)
        if member is not None and member.name != peer:
            log.warning("node %s sends messages of node %s: ignored", peer, member.name)
            return
        self._names[source] = peer
        host.on_messages(messages)

    def on_request(self, peer: str, kind: int, payload: bytes, answer: Answer) -> None:
        if kind == REPORT:
            self.reports.on_report(peer, payload, answer)
        else:
            self.forming.on_request(kind, payload, answer)

    def on_data(self, peer: str, data: bytes) -> None:
        if self._copier is not None:
            self._copier.on_data(peer, data)

    def on_writable(self, peer: str) -> None:
        if self._copier is not None:
            self._copier.on_writable(peer)

    def on_relay(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        self._owner.on_relay(transport, head, rest)

    # Events of the Raft member (`HostOwner`)

    def send(self, target: int, messages: list[Message]) -> None:
        self.links.send(self.name_of(target), self._card.number, target, messages)

    def copy_to(self, target: int, done: Callable[[int], None]) -> None:
        if self._copier is None:
            self._loop.call_soon(done, 0)
        else:
            self._copier.copy_to(self.name_of(target), done)

    def on_lead(self, term: int) -> None:
        self._led_term = term
        log.info("node %s leads the cluster, term %d", self._card.name, term)
        self._contacts.note_leader(self._loop.time())
        self._wake_waiting()
        self._owner.on_lead(term)

    def on_follow(self, leader: int) -> None:
        name = self.name_of(leader)
        led_term, self._led_term = self._led_term, 0
        if led_term and self.host is not None:
            level = logging.INFO if self.host.raft.term > led_term else logging.WARNING
            log.log(level, "this node leads no more: %s", why_led_no_more(self.host.raft, led_term))
        log.info("node %s leads the cluster" if name else "no node leads%s", name)
        self._contacts.note_leader(self._loop.time())
        self._wake_waiting()
        self._owner.on_follow(name)

    def on_commit(self, index: int) -> None:
        self._wake_waiting()
        self._owner.on_commit(index)

    def _wake_waiting(self) -> None:
        if self.host is not None:
            self.forming.wake_waiting(self.host)

    def on_members(self) -> None:
        """Follow a change of the members: connect to new ones, disconnect removed ones."""
        assert self.host is not None
        raft = self.host.raft
        members, committed = raft.log.members(), raft.log.members_at(raft.commit)
        for number, member in members.members.items():
            self._names[number] = member.name
        if len(members.everyone()) > 1 and self._card.has_data:
            self._card = replace(self._card, has_data=False)
        self.forming.on_members(members)
        self.links.set_peers(self._peers())
        for name, card in self.links.cards().items():
            number = self._number_of(name)
            if number and number < committed.next_number:
                if not members.has(number) and not committed.has(number):
                    self._loop.call_soon(self.links.disconnect, name, removed(name))
            self._look_again(self.host, name, card)

    def _look_again(self, host: RaftHost, name: str, card: Card) -> None:
        """Disconnect a node that was let in while it was not known which change is committed."""
        try:
            self._require_member(host, card)
        except LinkRefusedError as refusal:
            if refusal.code == LOST_DATA:
                self._loop.call_soon(self.links.disconnect, name, refusal)

    def on_fault(self, reason: str) -> None:
        log.error("this node stops working in the cluster: %s", reason)
        self._stop_parts()
        self.links.abort()
        self._owner.on_end(reason)

    # Names

    def name_of(self, number: int) -> str:
        """Return the name of a member; empty if it is not known."""
        if self.host is not None:
            member = self.host.raft.log.members().members.get(number)
            if member is not None:
                return member.name
        return self._names.get(number, "")

    def _other_leader(self) -> str:
        """Return the name of the node that leads; empty if it is this one, or none is known."""
        leader = NOBODY if self.host is None else int(self.host.raft.leader)
        return "" if leader in (NOBODY, self._card.number) else self.name_of(leader)

    def _number_of(self, name: str) -> int:
        """Return the newest number of a name; 0 if it is not known."""
        return max((number for number, known in self._names.items() if known == name), default=0)

    def _peers(self) -> dict[str, Address]:
        """Return the nodes to be connected with: the listed ones and the members.

        The list of this node decides about addresses: an operator changes it when a node has
        moved, or when this node reaches it by another address.
        """
        peers: dict[str, Address] = {}
        if self.host is not None:
            for member in self.host.raft.log.members().members.values():
                try:
                    peers[member.name] = parse_address(member.address.decode())
                except ValueError:
                    text = "node %s is not connected: its address %r is not host:port"
                    log.warning(text, member.name, member.address.decode(errors="replace"))
        peers.update(self._settings.peers)
        peers.pop(self._card.name, None)
        return peers

    # Status

    def status(self) -> ClusterStatus:
        """Return the cluster as this node sees it."""
        raft, members = None, []
        now_s, seen = self._loop.time(), self._contacts
        if self.host is not None:
            core, can_talk = self.host.raft, self.links.can_talk
            raft = describe_raft(core, self.name_of, seen.leader_s(now_s))
            members = describe_members(core, can_talk, seen, now_s, self._tick_s)
        waiting_for = self.forming.waiting_for()
        return describe_cluster(
            self._card, raft, members, waiting_for=waiting_for, refusals=seen.refusals(now_s)
        )
