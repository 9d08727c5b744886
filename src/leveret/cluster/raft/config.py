"""The settings of one member, and its limits.

Times are in ticks; the host decides how long a tick is. The election timeout of a follower is
`election_ticks`, plus a random part of the same length.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY

ELECTION_TICKS: Final = 10
HEARTBEAT_TICKS: Final = 2


class Config:
    """Identity and settings of a member. Tests change the fields."""

    def __init__(self, node: i64, group: i64) -> None:
        assert node != NOBODY
        self.node: i64 = node
        # The incarnation of a group: messages of a deleted group of the same name carry another
        # number and are refused.
        self.group: i64 = group
        self.election_ticks: i64 = ELECTION_TICKS
        self.heartbeat_ticks: i64 = HEARTBEAT_TICKS
        # Limits for one message of entries.
        self.append_count_max: i64 = 1024
        self.append_bytes_max: i64 = 1024 * 1024
        # Limits for entries in flight to one follower.
        self.inflight_count_max: i64 = 256
        self.inflight_bytes_max: i64 = 16 * 1024 * 1024
        # Limit for entries that are proposed and not yet committed.
        self.uncommitted_bytes_max: i64 = 64 * 1024 * 1024
        # Limit for entries in one `Ready` to be applied.
        self.apply_count_max: i64 = 4096
        self.reads_max: i64 = 10_000  # limit for waiting reads
        self.chunk_bytes: i64 = 64 * 1024
        self.snapshot_bytes_max: i64 = 1024 * 1024 * 1024
        # A non-voter that lacks at most this many entries may be promoted.
        self.promote_lag_max: i64 = 1000
        # Applied entries that stay in memory after a snapshot, for slow followers.
        self.trailing: i64 = 1000
        # The same limit while a follower is receiving a snapshot.
        self.trailing_max: i64 = 100_000

    def check(self) -> None:
        """Check the relations between limits that other modules rely on."""
        assert 0 < self.heartbeat_ticks < self.election_ticks
        assert self.append_bytes_max <= self.inflight_bytes_max
        assert self.append_count_max > 0
        assert self.inflight_count_max > 0
        assert self.apply_count_max > 0
        assert self.chunk_bytes > 0
