"""Calls that a `ClusterMember` makes to its node, and to the copier of directories."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from leveret.cluster.relay import RelayHead


class MemberOwner(Protocol):
    """The node, which runs a broker while it leads."""

    def on_lead(self, term: int) -> None:
        """Close the follower's log, recover, and call `lead_with`."""

    def on_follow(self, leader: str) -> None:
        """Handle another leader; empty: none. After `on_lead`: drop the broker, `begin_again`."""

    def on_commit(self, index: int) -> None:
        """Handle that blocks up to an index are committed, and on this disk."""

    def on_end(self, reason: str) -> None:
        """Handle the end of this member: a fault, or its removal."""

    def takes_relays(self) -> bool:
        """Return True if clients that other nodes relay may come, and wait for this node."""

    def on_relay(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        """Take a relayed client; see `leveret.cluster.relay.attach`."""


class DirectoryCopier(Protocol):
    """Copies the directory of the leader to a follower, over `Links.send_data`."""

    def copy_to(self, peer: str, done: Callable[[int], None]) -> None:
        """Begin a copy; call `done` on the loop with its last block, or 0 if it failed."""

    def on_data(self, peer: str, data: bytes) -> None:
        """Handle data of the copier of another node."""

    def on_writable(self, peer: str) -> None:
        """Handle that `Links.send_data` may go on."""

    def on_lost(self, peer: str) -> None:
        """Handle the end of a connection: the copy from or to this node has failed."""
