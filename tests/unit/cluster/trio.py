"""Three members with perfect disks and a perfect network, except where a test says otherwise."""

from leveret.cluster.raft.block import MEMBERS, NORMAL, TERM, Block
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.members import Member, Members, encode_members
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.ready import ReadRequest
from leveret.cluster.raft.state import LEADER
from leveret.cluster.raft.stored import HardState, Stored


def founders(*numbers: int) -> Members:
    return Members([Member(number) for number in numbers], [])


def fresh(members: Members) -> Stored:
    stored = Stored(HardState())
    stored.members = [(0, members)]
    return stored


class Host:
    """One member, and the log files of its node."""

    def __init__(self, node: int, stored: Stored, **limits: int) -> None:
        config = Config(node)
        config.held_count_max = 0
        for name, value in limits.items():
            setattr(config, name, value)
        self.raft = Raft(config, stored, node)
        self.blocks: dict[int, Block] = {}
        self.is_syncing = True  # own blocks are synced at once
        self.copies: list[int] = []
        self.reads: list[ReadRequest] = []
        self.is_reading = True

    def append(self, data: bytes, kind: int = NORMAL, members: Members | None = None) -> None:
        raft = self.raft
        block = Block(raft.log.last_index + 1, raft.term, kind, data, members)
        raft.append(block)
        self.blocks[int(block.index)] = block

    def change(self, members: Members) -> None:
        self.append(encode_members(members), MEMBERS, members)

    def sync(self) -> None:
        """The node has synced everything that it has appended."""
        self.raft.on_synced(self.raft.log.last_index, self.raft.log.last_term())

    def write(self) -> bool:
        """Write and sync one `Ready`; return True if there was one."""
        ready = self.raft.ready()
        if ready is None:
            return False
        if ready.cut_from:
            self.blocks = {at: block for at, block in self.blocks.items() if at < ready.cut_from}
        for block in ready.blocks:
            self.blocks[int(block.index)] = block
        self.raft.advance(ready)
        return True

    def work(self) -> list[Message]:
        """Do all work that Raft asks for; return the messages to send."""
        raft = self.raft
        while self.write():
            pass
        if raft.needs_term_block():
            self.append(b"term", TERM)
        if raft.role == LEADER and self.is_syncing:
            self.sync()
        self.reads += raft.take_reads()
        while self.reads and self.is_reading:
            request = self.reads.pop(0)
            wanted = range(request.first, request.last + 1)
            raft.on_read(request, [self.blocks[at] for at in wanted if at in self.blocks])
            self.reads += raft.take_reads()
        self.copies += raft.take_copies()
        return raft.take_messages()


class Trio:
    """Three members of which the first leads, and nodes that hear nothing."""

    def __init__(self, **limits: int) -> None:
        self.deaf: set[int] = set()
        self.sent: list[Message] = []
        self.hosts = {node: Host(node, fresh(founders(1, 2, 3)), **limits) for node in (1, 2, 3)}
        self.lead(1)

    @property
    def leader(self) -> Host:
        return next(host for host in self.hosts.values() if host.raft.role == LEADER)

    def raft(self, node: int) -> Raft:
        return self.hosts[node].raft

    def lead(self, node: int) -> None:
        """Let a node miss its leader, and win."""
        raft = self.raft(node)
        raft.elapsed = raft.timeout
        raft.tick()
        self.run()
        assert raft.role == LEADER

    def run(self) -> None:
        """Deliver messages until there are no more."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """Let each member work once; return True if there was a message."""
        messages = [message for host in self.hosts.values() for message in host.work()]
        self.sent += messages
        for message in messages:
            if message.target not in self.deaf and message.target in self.hosts:
                self.raft(message.target).step(message)
        return bool(messages)

    def tick(self, count: int = 1) -> None:
        """Let time pass for all."""
        for _ in range(count):
            for host in self.hosts.values():
                host.raft.tick()
            self.run()

    def of(self, kind: int, target: int = 0) -> list[Message]:
        """Messages of a kind that were sent."""
        return [m for m in self.sent if m.kind == kind and target in (0, m.target)]
