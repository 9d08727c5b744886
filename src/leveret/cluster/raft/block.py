"""Blocks of the log, on which the members of a cluster agree one after the other.

A block is the unit of the node's write-ahead log. Its number in the log is the index. `data` is the
encoded block as it stands in a log file, head included; this package passes it on and never looks
into it. A block never changes once it is made, so the log and messages share it.

    NORMAL   records of the broker
    TERM     the first block of a term; its leader counts commits from this block on
    MEMBERS  the members of the cluster from this block on, given beside the data
    ROLL     the next block begins a new log file
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.members import Members

NORMAL: Final = 0
TERM: Final = 1
MEMBERS: Final = 2
ROLL: Final = 3

KIND_MAX: Final = ROLL

BLOCK_HEAD_BYTES: Final = 13  # term, kind and size of a block in a message
# The largest block that a message carries: room for the largest body that RabbitMQ allows.
BLOCK_BYTES_MAX: Final = 512 * 1024 * 1024


class Block:
    """One block of the log. Only a MEMBERS block has `members`."""

    def __init__(
        self, index: i64, term: i64, kind: i64, data: bytes, members: Members | None = None
    ) -> None:
        assert (kind == MEMBERS) == (members is not None)
        self.index: i64 = index
        self.term: i64 = term
        self.kind: i64 = kind
        self.data = data
        self.members = members

    def size_bytes(self) -> i64:
        """Return the size in a message or in memory, about."""
        return BLOCK_HEAD_BYTES + len(self.data)
