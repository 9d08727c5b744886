"""Which nodes live: one small beat for each pair of nodes, however many groups they share.

A node beats to every node that it has something to do with. Its beat says its *incarnation*, a
number that grows with every start, and counts. The lease of a node holds while its beats come; it
is lost after `lease_ticks` without one. Beats of an older incarnation, or that were overtaken, say
nothing.

Beats say that the node lives and its disk answers, as they leave with its turns; not that it leads
anything, which is what `leveret.cluster.host` makes of them.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.messages import NODE_BEAT, Message

# What a beat can bring
NOTHING: Final = 0  # the lease goes on
RETURNED: Final = 1  # a lease begins, or begins again
RESTARTED: Final = 2  # the node has started anew


class Peer:
    """Another node."""

    def __init__(self) -> None:
        self.incarnation: i64 = 0  # 0: never heard of
        self.count: i64 = 0  # of its newest beat
        self.silent_ticks: i64 = 0  # since that came
        self.is_alive = False


class Leases:
    """The nodes that this one knows, and whose beats it hears."""

    def __init__(self, node: i64, incarnation: i64, beat_ticks: i64, lease_ticks: i64) -> None:
        assert 0 < beat_ticks < lease_ticks
        assert incarnation > 0
        self.node: i64 = node
        self.incarnation: i64 = incarnation
        self.beat_ticks: i64 = beat_ticks
        self.lease_ticks: i64 = lease_ticks
        self.peers: dict[int, Peer] = {}
        self._elapsed: i64 = 0
        self._count: i64 = 0

    def meet(self, node: i64) -> None:
        """From now on beat to this node."""
        if node != self.node and node not in self.peers:
            self.peers[node] = Peer()

    def forget(self, node: i64) -> None:
        self.peers.pop(node, None)

    def tick(self) -> list[int]:
        """Time goes on; the nodes whose leases are lost by that."""
        lost: list[int] = []
        for node, peer in self.peers.items():
            peer.silent_ticks += 1
            if peer.is_alive and peer.silent_ticks >= self.lease_ticks:
                peer.is_alive = False
                lost.append(node)
        return lost

    def beats(self) -> list[Message]:
        """The beats that are due at this tick."""
        self._elapsed += 1
        if self._elapsed < self.beat_ticks:
            return []
        self._elapsed = 0
        self._count += 1
        return [self._beat(node) for node in self.peers]

    def _beat(self, node: i64) -> Message:
        message = Message(NODE_BEAT, self.node, node, 0, 0)
        message.index = self.incarnation
        message.context = self._count
        return message

    def on_beat(self, message: Message) -> i64:
        """What a beat of another node brings."""
        self.meet(message.source)
        peer = self.peers[message.source]
        if message.index < peer.incarnation:
            return NOTHING
        is_new = message.index > peer.incarnation
        if not is_new and message.context <= peer.count:
            return NOTHING
        was_alive = peer.is_alive
        is_first = peer.incarnation == 0
        peer.incarnation = message.index
        peer.count = message.context
        peer.silent_ticks = 0
        peer.is_alive = True
        if is_new and not is_first:
            return RESTARTED
        return NOTHING if was_alive else RETURNED

    # Looking

    def is_alive(self, node: i64) -> bool:
        """Whether the lease of a node holds; one's own always does."""
        peer = self.peers.get(node)
        return node == self.node or (peer is not None and peer.is_alive)

    def holds(self, node: i64, incarnation: i64) -> bool:
        """Whether the lease of this very incarnation of a node holds."""
        peer = self.peers.get(node)
        return peer is not None and peer.is_alive and peer.incarnation == incarnation

    def silent_ticks(self, node: i64) -> i64:
        """How long a node was not heard of; of one that is not known, too long."""
        peer = self.peers.get(node)
        return self.lease_ticks if peer is None else peer.silent_ticks
