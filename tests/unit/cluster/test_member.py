"""Three members over real sockets and TLS: they found a cluster, commit, and survive a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from leveret.cluster.host_owner import Blocks, Done
from leveret.cluster.member import ClusterMember, Directory, NodeSettings
from leveret.cluster.peers import Address, Tls
from leveret.cluster.raft.block import MEMBERS, NORMAL, Block
from leveret.cluster.raft.members import decode_members
from leveret.cluster.raft.stored import HardState, Stored
from leveret.cluster.relay import AMQP, RelayHead, attach
from tests.tls.certificates import TestAuthority
from tests.unit.cluster.played import played, until
from tests.unit.cluster.test_links import HOST, Client, Echo, tls_of

SECRET = b"a secret of all nodes"
NAMES = ("a", "b", "c")


class Node:
    """Owner and log of one member: everything is on disk at once."""

    def __init__(self, name: str, peers: dict[str, Address], tls: Tls) -> None:
        self.name = name
        self.blocks: dict[int, Block] = {}
        self.committed = 0
        self.is_leading = False
        self.loop = asyncio.get_running_loop()
        settings = NodeSettings(name, f"{HOST}:0", peers, SECRET)
        directory = Directory(name.encode() * 16, Stored(HardState()))
        self.member = ClusterMember(settings, directory, self, self, chance=Random(name), tls=tls)

    def publish(self, data: bytes) -> None:
        self._append(NORMAL, data)

    def _append(self, kind: int, data: bytes) -> None:
        index = self.member.next_index
        self.member.append(index, kind, data)
        found = decode_members(data) if kind == MEMBERS else None
        self.blocks[index] = Block(index, self.member.term, kind, data, found)
        self.loop.call_soon(self.member.on_written, index)

    # The log

    def commit_to(self, index: int) -> None:
        self.committed = index

    def read_blocks(self, first: int, last: int, bytes_max: int, done: Blocks) -> None:
        # One block is enough for a log that is read from files: the leader asks for the next.
        found = [self.blocks[first]] if first in self.blocks else []
        self.loop.call_soon(done, found)

    def make_block(self, index: int, term: int, kind: int, payload: bytes) -> bytes:
        return payload

    def write(self, hard: HardState | None, cut_from: int, blocks: list[Block], done: Done) -> None:
        for block in blocks:
            self.blocks[int(block.index)] = block
        self.loop.call_soon(done)

    def block_fault(self, block: Block) -> str:
        return ""

    def write_identity(self, cluster: bytes, number: int, members: bytes, done: Done) -> None:
        self.loop.call_soon(done)

    def resume(self) -> None:
        pass

    def append_members(self, members: bytes) -> None:
        self.loop.call_soon(self._append, MEMBERS, members)

    # The owner

    def on_lead(self, term: int) -> None:
        self.is_leading = True
        self.loop.call_soon(self.member.lead_with, self)

    def on_follow(self, leader: str) -> None:
        if self.is_leading:
            self.is_leading = False
            self.loop.call_soon(self._begin_again)

    def _begin_again(self) -> None:
        assert self.member.host is not None
        raft = self.member.host.raft
        stored = Stored(raft.hard.copy())
        stored.last_index = max(self.blocks, default=0)
        stored.commit = min(int(raft.commit), int(stored.last_index))
        stored.terms = raft.log.terms.rows()
        stored.members = [(0, raft.log.members())]
        self.member.begin_again(stored, self)

    def on_commit(self, index: int) -> None:
        pass

    def on_end(self, reason: str) -> None:
        raise AssertionError(reason)

    def takes_relays(self) -> bool:
        return self.is_leading

    def on_relay(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        attach(transport, Echo(), rest)

    def voters(self) -> list[str]:
        status = self.member.status()
        return sorted(member.name for member in status.members if member.role != "non-voter")


@played
async def test_three_members_over_tls_found_commit_relay_and_replace_a_leader(
    tmp_path: Path,
) -> None:
    authority = TestAuthority(tmp_path)
    peers = {name: Address(HOST, 1) for name in NAMES}
    nodes = [Node(name, peers, tls_of(authority, authority)) for name in NAMES]
    for node in nodes:
        await node.member.start(HOST, 0)
        peers[node.name] = Address(HOST, node.member.links.port)
    for node in nodes:
        node.member.links.set_peers(peers)
    await until(lambda: all(node.voters() == [*NAMES] for node in nodes))
    leader = next(node for node in nodes if node.member.may_append)
    data = [bytes([at]) * 100_000 for at in range(50)]
    for body in data:
        leader.publish(body)
    last = leader.member.next_index - 1
    await until(lambda: all(node.committed == last for node in nodes))
    for node in nodes:
        assert [node.blocks[last - 49 + at].data for at in range(50)] == data
    follower = next(node for node in nodes if node is not leader)
    head = RelayHead(AMQP, "10.0.0.7", 1234, HOST, 5672)
    transport, rest = await follower.member.links.open_relay(leader.name, head, b"AMQP")
    client = Client()
    attach(transport, client, rest)
    await until(lambda: client.received == b"AMQP")
    transport.close()
    left = [node for node in nodes if node is not leader]
    leader.member.abort()
    await until(lambda: any(node.member.may_append for node in left))
    leader = next(node for node in left if node.member.may_append)
    leader.publish(b"after")
    await until(lambda: leader.committed == leader.member.next_index - 1)
    for node in left:
        await node.member.stop()
