"""Which nodes are alive: one small heartbeat for each pair of nodes, for all their groups.

A node sends heartbeats to every node that shares a group with it. A heartbeat carries the sender's
*incarnation*, a number that grows with every start, and a counter. The lease of a node holds while
its heartbeats arrive, and is lost after `lease_ticks` without one. Heartbeats of an older
incarnation, or that were overtaken, are ignored.

Heartbeats leave with the turns of a node. So they show that the node is alive and its disk works,
but not that it leads a group; `leveret.cluster.host` draws that conclusion.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.messages import NODE_HEARTBEAT, Message

# What a heartbeat can bring
NOTHING: Final = 0  # the lease goes on
RETURNED: Final = 1  # a lease begins, or begins again
RESTARTED: Final = 2  # the node has started anew


class Peer:
    """Another node."""

    def __init__(self) -> None:
        self.incarnation: i64 = 0  # 0: never heard of
        self.count: i64 = 0  # of its newest heartbeat
        self.silent_ticks: i64 = 0  # since that came
        self.is_alive = False


class Leases:
    """The nodes that this one knows, and whose heartbeats it hears."""

    def __init__(self, node: i64, incarnation: i64, heartbeat_ticks: i64, lease_ticks: i64) -> None:
        assert 0 < heartbeat_ticks < lease_ticks
        assert incarnation > 0
        self.node: i64 = node
        self.incarnation: i64 = incarnation
        self.heartbeat_ticks: i64 = heartbeat_ticks
        self.lease_ticks: i64 = lease_ticks
        self.peers: dict[int, Peer] = {}
        self._elapsed: i64 = 0
        self._count: i64 = 0

    def meet(self, node: i64) -> None:
        """Send heartbeats to this node from now on."""
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

    def heartbeats(self) -> list[Message]:
        """The heartbeats that are due at this tick."""
        self._elapsed += 1
        if self._elapsed < self.heartbeat_ticks:
            return []
        self._elapsed = 0
        self._count += 1
        return [self._heartbeat(node) for node in self.peers]

    def _heartbeat(self, node: i64) -> Message:
        message = Message(NODE_HEARTBEAT, self.node, node, 0, 0)
        message.index = self.incarnation
        message.context = self._count
        return message

    def on_heartbeat(self, message: Message) -> i64:
        """What a heartbeat of another node brings."""
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
