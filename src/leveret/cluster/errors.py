"""Errors of a cluster of nodes.

LeveretError
└── ClusterError                this node cannot serve the request now
    ├── NotLeaderError          another node leads, or none; has its number
    ├── BusyError               a limit is reached, or a change is under way
    ├── ChangeRefusedError      a change of the members that is not possible
    └── LinkRefusedError        a node refuses the connection of another; says why

ProtocolError
└── FalseMessageError           a message contradicts the facts that this node has
"""

from leveret.errors import LeveretError, ProtocolError


class ClusterError(LeveretError):
    """This node cannot serve the request now."""


class NotLeaderError(ClusterError):
    """Another node leads, or none does."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"node {leader} leads" if leader else "no node leads")
        self.leader = leader  # 0 if none is known


class BusyError(ClusterError):
    """A limit is reached, or a change is under way."""


class ChangeRefusedError(ClusterError):
    """A change of the members that is not possible."""


class LinkRefusedError(ClusterError):
    """A node refuses the connection of another node, with a code of `cluster.handshake`."""

    def __init__(self, code: int, reason: str, *, by_peer: bool) -> None:
        super().__init__(reason)
        self.code = code
        self.by_peer = by_peer  # True if the other node refused, False if this one did


class FalseMessageError(ProtocolError):
    """A message of another node contradicts the facts that this node has. It has changed nothing.

    It ends the connection with that node, and not this node, which others rely on.
    """
