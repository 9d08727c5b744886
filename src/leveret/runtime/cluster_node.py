"""A node of a cluster: it leads and runs a broker, or it follows and relays its clients.

    follows ── elected, its TERM block committed ──► recovers the directory as a restart does
       ▲▲                                                 │   │ first block of its broker committed
       │└── another node leads: drops the broker ◄────────┘   │
       └─── drops the broker, closes its clients ◄── leads ◄──┘

The cluster's member (`leveret.cluster.member`) runs all the time. It writes to the follower's log,
or is given the blocks of the broker's log. Role changes are done one after the other by one task.
A recovery runs in steps, between which the member sends its heartbeats.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from leveret.arrow.bulk_reads import BulkReads
from leveret.clock import Clock
from leveret.cluster.errors import ClusterError
from leveret.cluster.member import ClusterMember, Directory, NodeSettings
from leveret.cluster.peers import Tls
from leveret.cluster.raft.config import ELECTION_TICKS
from leveret.cluster.raft.members import encode_members
from leveret.cluster.relay import HTTP, HTTPS, RelayHead
from leveret.config.settings import Settings
from leveret.errors import ConfigError, CorruptionError, LeveretError, system_reason
from leveret.http.transport.open_connections import open_connections
from leveret.listening import Client
from leveret.runtime.cluster_facts import ClusterFacts
from leveret.runtime.cluster_logs import FollowingLog, LeadingLog, put_hard
from leveret.runtime.directory_copier import DirectoryCopier, Offer
from leveret.runtime.follower_http import FollowerHttp
from leveret.runtime.fronts import make_front
from leveret.runtime.node import Node, NotWantedError
from leveret.runtime.relayed_clients import RelayedClients
from leveret.runtime.relays import Relayed as LeaderConnection
from leveret.runtime.relays import Relays
from leveret.runtime.role_changes import RoleChanges, failure_text
from leveret.storage.directory_copy import CopySource, CopyTarget
from leveret.storage.disk import Disk
from leveret.storage.file_names import numbers
from leveret.storage.raft_state import RaftState, read_raft_state, write_raft_state
from leveret.storage.replicated_log import ReplicatedLog
from leveret.storage.replication import Replication

log = logging.getLogger(__name__)

RETRY_S: Final = 0.1  # after a relay that was refused
UID_BYTES: Final = 16
ROLL_WAIT_S: Final = 5.0  # then a copy begins with the last file that is committed
HAND_OVER_S: Final = 5.0  # then a node that stops no longer waits for its successor


class ClusterNode(ClusterFacts):
    """One node of a cluster. It is the owner of the cluster's member."""

    def __init__(
        self,
        settings: Settings,
        cluster: NodeSettings,
        clock: Clock,
        disk: Disk,
        *,
        chance: Random | None = None,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(settings, cluster)
        self._clock = clock
        self._disk = disk
        self._chance = chance if chance is not None else secrets.SystemRandom()
        self._tls = tls
        self.node: Node | None = None  # the broker, while this node leads or begins to
        self._open: Node | None = None  # the broker, while clients are served
        self._leading: LeadingLog | None = None
        self._held: dict[CopySource, ReplicatedLog] = {}  # logs that remove no file during a copy
        self._following: FollowingLog | None = None
        self._term = 0  # the term in which this node has to lead; 0: it has to follow
        self._changes = RoleChanges()
        self._roles: asyncio.Task[None] | None = None
        self._relayed_clients = RelayedClients(self._changes, lambda: self._open, self._will_serve)
        self._has_stopped = False
        self.relays = Relays()  # clients of this node that the leader serves
        self.http_connections = open_connections(settings)  # that this node serves as a follower
        self.reads = BulkReads(disk.folder)  # of streams, while this node follows
        self.on_dropped: Callable[[], object] = bool  # this node has dropped its broker
        self.now_ms = clock.now_ms
        self.ended = asyncio.get_running_loop().create_future()  # the reason why the node has ended

    async def start(self, host: str, port: int) -> None:
        """Open the directory and listen for other nodes. Raises OSError and LeveretError."""
        loop = asyncio.get_running_loop()
        self._disk.prepare()
        state = read_raft_state(self._disk)
        has_data = state is None and bool(numbers(self._disk.names(), ".log"))
        if state is None:
            uid = self._chance.getrandbits(UID_BYTES * 8).to_bytes(UID_BYTES, "big").hex()
            state = RaftState("", 0, uid)
            write_raft_state(self._disk, state)
        self._copier = DirectoryCopier(self._disk, self)
        following = self._follow(loop, state)
        following.require_node(self.cluster.name)
        stored = following.stored()
        self.member = ClusterMember(
            self.cluster,
            Directory(
                uid=state.uid.encode(),
                stored=stored,
                cluster=bytes.fromhex(state.cluster_id),
                number=state.number,
                has_data=has_data or (not state.cluster_id and stored.last_index > 0),
            ),
            following,
            self,
            chance=Random(self._chance.getrandbits(62)),
            copier=self._copier,
            tls=self._tls,
            tick_s=self.settings.cluster_election_timeout_ms / 1000 / ELECTION_TICKS,
        )
        self.send_reports()
        self._roles = loop.create_task(self._run_roles(), name="cluster-roles")
        await self.member.start(host, port)
        self.watch()

    def _follow(self, loop: asyncio.AbstractEventLoop, state: RaftState) -> FollowingLog:
        following = FollowingLog(self._disk, loop, state, self._clock.now_ms)
        following.log.on_fault = self._on_log_fault
        following.log.on_full = self.note_full
        following.log.on_room = self.note_room
        self.disk_fault = ""
        following.log.on_removed = self._on_removed
        self._following = following
        return following

    def _on_log_fault(self, fault: Exception) -> None:
        self.member.fail(f"the log cannot be written: {system_reason(fault)}")

    def _on_removed(self, index: int) -> None:
        self.member.forget(index)

    # Events of the member (`MemberOwner`)

    def on_lead(self, term: int) -> None:
        """Begin to lead: the TERM block of this node is committed."""
        self._term = term
        self.note_leader(self.cluster.name)
        self.relays.on_leader(self.leader)
        self._changes.tell()

    def on_follow(self, leader: str) -> None:
        """Follow another leader, or none."""
        self._term = 0
        self._open = None
        self.note_leader(leader)
        self.relays.on_leader(leader)
        self._changes.tell()

    def on_commit(self, index: int) -> None:
        """Do nothing: the member tells the logs."""

    def on_end(self, reason: str) -> None:
        """End the node: its member has failed, or was removed."""
        self.end_watch()
        self._term = 0
        self._open = None
        self._changes.tell()
        if not self.ended.done():
            self.ended.set_result(reason)

    def on_relay(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        """Take a client that another node relays. It waits until this node serves clients."""
        self._relayed_clients.take(transport, head, rest)

    def takes_relays(self) -> bool:
        """Return True if this node leads, or has won the election and room for clients to wait."""
        host = self.member.host
        return host is not None and (
            self._open is not None or (host.is_elected and self._relayed_clients.has_room)
        )

    def _will_serve(self) -> bool:
        host = self.member.host
        return self._term != 0 or (host is not None and host.is_elected)

    async def find_server(
        self, head: RelayHead, client: Client
    ) -> asyncio.BaseProtocol | LeaderConnection:
        """Return the server of a client of this node: its own broker, or the leader."""
        while True:
            node = self._open
            if node is not None:
                return await make_front(node, head, client, None)
            if head.service in (HTTP, HTTPS) and not self._term:
                return FollowerHttp(self, client, head)
            found = await self._maybe_relay(head)
            if found is not None:
                return found

    async def open_relay(self, head: RelayHead) -> LeaderConnection:
        """Open a connection to the leader for a client. It waits for a leader."""
        while self._open is None:
            found = await self._maybe_relay(head)
            if found is not None:
                return found
        raise ClusterError("this node leads now")

    async def _maybe_relay(self, head: RelayHead) -> LeaderConnection | None:
        """Open a connection to the leader for a client, or wait a little and return None."""
        if self.leader and self.leader != self.cluster.name:
            try:
                found = await self.relays.open(self.member.links.open_relay(self.leader, head))
                return found if found is None else self.note_relay(found)
            except ClusterError as fault:
                self.note_relay_fault(fault)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                await self._changes.next()
        return None

    def stream_end(self, number: int) -> int:
        """Return the end of a stream in the segments of this node; 0 if it does not follow."""
        return self._following.log.stream_end(number) if self._following is not None else 0

    def why_unwell(self) -> str:
        """Return why clients of this node are not served; empty if they are."""
        if self._open is not None:
            return ""
        if self.leader and self.leader != self.cluster.name:
            return self.relay_fault()
        reasons = self.reasons() or ["No node leads the cluster."]
        return self.member.status().waiting_for or " ".join(reasons)

    async def command(self, name: str, node: str) -> str:
        """Do a command of an operator; return a sentence, or raise ClusterError."""
        commands = {
            "lead": self.member.lead,
            "remove": self.member.remove,
            "drain": self.member.drain,
            "revive": self.member.revive,
        }
        return await commands[name](node)

    async def serves(self) -> None:
        """Return when clients are served: by the broker of this node, or by another leader."""
        own = ("", self.cluster.name)
        await self._changes.until(lambda: self._open is not None or self.leader not in own)

    @property
    def is_serving(self) -> bool:
        """True if this node leads, and serves clients with its own broker."""
        return self._open is not None

    def alarms(self) -> Sequence[str]:
        return self._open.view.alarms() if self._open is not None else ()

    # Copies of the directory

    def send_data(self, peer: str, *pieces: bytes) -> bool:
        """Send bytes to the copier of another node; return False if it is not connected."""
        return self.member.links.send_data(peer, *pieces)

    def begin_copy(self, done: Callable[[CopySource | None], None]) -> None:
        """Hold the files of the broker's log as of a new log file.

        Before the broker runs, the files are those of the newest ROLL block that is committed: the
        member that gets the copy may be needed to commit the first block of this leader. The same
        holds if the new file is not committed within `ROLL_WAIT_S`.
        """
        if self._open is None:
            done(self._open_source(self._newest_settled() if self._following is not None else 0))
            return
        leading = self._open.replicated_log()
        waiting: asyncio.TimerHandle | None = None

        def hold(number: int) -> CopySource | None:
            leading.hold_files()
            source = self._open_source(number)
            if source is None:
                leading.release_files()
            else:
                self._held[source] = leading
            return source

        def on_rolled(number: int) -> None:
            nonlocal waiting
            if waiting is not None:
                waiting.cancel()
                waiting = None
                done(hold(number))

        def on_late() -> None:
            nonlocal waiting
            is_leading = self._open is not None and self._open.replicated_log() is leading
            source = hold(self._newest_settled()) if is_leading else None
            if source is not None:
                waiting = None
                done(source)

        waiting = asyncio.get_running_loop().call_later(ROLL_WAIT_S, on_late)
        leading.roll(on_rolled)

    def end_copy(self, source: CopySource) -> None:
        """Release the files."""
        source.close()
        held = self._held.pop(source, None)
        if held is not None and self._open is not None and self._open.replicated_log() is held:
            held.release_files()

    def _newest_settled(self) -> int:
        return max(numbers(self._disk.names(), ".settled"), default=0)

    def _open_source(self, number: int) -> CopySource | None:
        """Return the directory as of the ROLL block of a file; None if there is none.

        Its files are open, so a file that is removed meanwhile only ends the copy.
        """
        try:
            return CopySource(self._disk, number, has_later_blocks=True) if number else None
        except OSError as fault:
            log.warning("the directory cannot be copied: %s", fault)
            return None

    def term_of(self, index: int) -> int:
        """Return the term of a block."""
        assert self.member.host is not None
        return int(self.member.host.raft.log.term(index))

    def follows(self, peer: str) -> bool:
        """Return True if this node follows another one as its leader."""
        return self._following is not None and self.leader == peer

    def may_install(self, index: int, term: int) -> bool:
        """Return True if a copy that ends with this block may replace the log of this node."""
        return self._following is not None and self.member.may_install(index, term)

    def install(self, target: CopyTarget, offer: Offer) -> None:
        """Replace the directory by a received copy, and follow with it."""
        assert self._following is not None and self.member.host is not None
        self._following.close()
        state = self._following.state
        put_hard(state, self.member.host.raft.hard)
        try:
            target.install(offer.number, offer.index, offer.names, state)
            following = self._follow(asyncio.get_running_loop(), state)
            stored = following.stored()
            if stored.needs_copy:
                raise CorruptionError(following.scan.lost)
        except (OSError, LeveretError) as fault:
            # There is no log to go on with. The next start finishes the installation, or asks for
            # another copy.
            self.member.fail(f"a copy of the leader's directory cannot be used: {fault}")
            raise
        self.member.install(stored, following)

    # Roles

    async def _run_roles(self) -> None:
        """Follow the decisions of the member, one after the other."""
        try:
            while not self._has_stopped:
                if self._term and self.node is None:
                    await self._begin_leading(self._term)
                elif not self._term and self.node is not None:
                    await self._end_leading()
                else:
                    await self._changes.next()
        except Exception as fault:  # a node that changes its role no more must end
            self.member.fail(f"this node cannot lead: {failure_text(fault)}")

    async def _begin_leading(self, term: int) -> None:
        """Recover the directory with a broker, and serve clients."""
        assert self._following is not None
        self._copier.stop()
        self._following.close()
        self.disk_fault = ""
        self._clock.raise_to(self._following.log.last_ms)
        self._following = None
        self._disk.release()  # the store of the broker locks it again, without a wait in between
        host = self.member.host
        assert host is not None
        replication = Replication(
            term,
            append=self._append,
            on_synced=host.on_written,  # the busy calls go to the host, which is compiled
            is_full=host.is_full,
            has_lease=host.has_lease,
            terms=self._terms,
            members=self._members,
        )
        node = self.node = self.make_node(replication)
        try:
            await node.start(on_recovered=self._lead, is_wanted=lambda: self._term == term)
        except NotWantedError:
            log.info("the recovery ends: this node does not lead any more")
            self.node = None
            self._follow_again()
            return
        await self._wait_for_commit(node, term)
        if self._term == term:
            self._open = node
            self._changes.tell()

    async def _wait_for_commit(self, node: Node, term: int) -> None:
        """Return when the first blocks of the broker are committed, or the lead is lost.

        A member that is needed for the commit may have to receive a whole copy first.
        """
        loop = asyncio.get_running_loop()
        waiting = loop.create_task(node.wait_for_commit())
        losing = loop.create_task(self._changes.until(lambda: self._term != term))
        await asyncio.wait((waiting, losing), return_when=asyncio.FIRST_COMPLETED)
        losing.cancel()
        if self._term == term:
            waiting.result()
        elif not waiting.done() or waiting.exception() is None:
            waiting.cancel()

    def make_node(self, replication: Replication) -> Node:
        """Make the broker of this node, which leads."""
        return Node(
            self.settings, self._clock, disk=self._disk, listens=False, replication=replication
        )

    def _lead(self) -> None:
        """Let the member lead with the log of the broker, which has read the directory."""
        node = self.node
        assert node is not None
        node.view.cluster = self
        node.view.bound = self.bound
        node.on_unwritable(self._on_log_fault)
        self._leading = LeadingLog(node.replicated_log(), self._disk, asyncio.get_running_loop())
        self.member.lead_with(self._leading)

    async def _end_leading(self) -> None:
        """Drop the broker, and follow."""
        assert self.node is not None
        self._copier.stop()
        node, self.node = self.node, None
        await node.abandon()
        if self._leading is not None:
            self._leading.close()
            self._leading = None
        self._follow_again()

    def _follow_again(self) -> None:
        """Open the directory that the broker has left, and follow with it."""
        self.on_dropped()
        if self._has_stopped or self.ended.done():
            return
        self._disk.prepare()
        state = read_raft_state(self._disk)
        if state is None:
            raise ConfigError("the file raft is missing")
        following = self._follow(asyncio.get_running_loop(), state)
        self.member.begin_again(following.stored(), following)

    def _append(self, number: int, term: int, kind: int, data: bytes) -> None:
        host = self.member.host
        assert host is not None and host.raft.term == term
        host.append(number, kind, data)

    def _terms(self) -> list[tuple[int, int]]:
        assert self.member.host is not None
        return self.member.host.raft.log.terms.rows()

    def _members(self) -> bytes:
        assert self.member.host is not None
        return encode_members(self.member.host.raft.log.members())

    async def stop(self) -> None:
        """Hand the lead over, if this node leads, and stop."""
        self.end_watch()
        if self._open is not None:
            with contextlib.suppress(ClusterError, TimeoutError):
                async with asyncio.timeout(HAND_OVER_S):
                    await self.member.hand_over()
        self._has_stopped = True
        self._term = 0
        self._open = None
        self._changes.tell()
        if self._roles is not None:
            await self._roles
        if self.node is not None:
            await self._end_leading()
        self._relayed_clients.stop()
        await self.reads.stop()
        await self.member.stop()
        if self._following is not None:
            self._following.close()
            self._disk.release()
