"""Interfaces that a `RaftHost` calls: the logs of its node, links, copies, and its owner."""

from collections.abc import Callable
from typing import Protocol

from leveret.cluster.raft.block import Block
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.stored import HardState

Done = Callable[[], None]
Blocks = Callable[[list[Block]], None]


class LogReader(Protocol):
    """The part of a log that both roles need."""

    def commit_to(self, index: int) -> None:
        """Note that all blocks up to an index are committed, and on this disk."""

    def read_blocks(self, first: int, last: int, bytes_max: int, done: Blocks) -> None:
        """Read blocks from files for a follower: at least one, and no more than `bytes_max`.

        Call `done` on the loop, with no blocks if the first one is in no file any more.
        """


class MemberLog(LogReader, Protocol):
    """The log of a node that follows. Writes are done in their order."""

    def make_block(self, index: int, term: int, kind: int, payload: bytes) -> bytes:
        """Encode a block that the log itself makes, as it is stored in a log file."""

    def write(self, hard: HardState | None, cut_from: int, blocks: list[Block], done: Done) -> None:
        """Write and sync a hard state, cut the log from a block on (0: do not), and write blocks.

        Call `done` on the loop when all is synced, and all writes before it: also if there is
        nothing to write, and also after the log was closed in order. A fault is told to
        `ClusterMember.fail`.
        """

    def block_fault(self, block: Block) -> str:
        """Return why a block that has arrived must not be written; empty if it is sound."""

    def write_identity(self, cluster: bytes, number: int, members: bytes, done: Done) -> None:
        """Write and sync which cluster this node belongs to, its number, and the first members."""


class LeaderLog(LogReader, Protocol):
    """The log of a node that leads."""

    def append_members(self, members: bytes) -> None:
        """Make a block of kind MEMBERS behind all blocks so far, and give it to `append`."""

    def resume(self) -> None:
        """Make blocks again: a hand-over was given up, and `append` takes them."""


class HostOwner(Protocol):
    """Carries messages, and is told about the role."""

    def send(self, target: int, messages: list[Message]) -> None:
        """Send messages to a member, or drop them."""

    def copy_to(self, target: int, done: Callable[[int], None]) -> None:
        """Copy the directory to a member; call `done` with its last block, or 0 if that failed."""

    def on_lead(self, term: int) -> None:
        """Handle that this member leads: its TERM block is committed."""

    def on_follow(self, leader: int) -> None:
        """Handle that another member leads, or none (0)."""

    def on_commit(self, index: int) -> None:
        """Handle that blocks up to an index are committed, and on this disk."""

    def on_members(self) -> None:
        """Handle a change of the members, committed or not."""

    def on_fault(self, reason: str) -> None:
        """Handle a fault, after which this host does nothing more."""
