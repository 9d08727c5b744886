"""The settings of one member, and its limits.

Times are in ticks; the host decides how long a tick is. The election timeout of a follower is
`election_ticks`, plus a random part of the same length.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.members import NOBODY

ELECTION_TICKS: Final = 10
HEARTBEAT_TICKS: Final = 2
LINK_LOST_TICKS: Final = 3
DRAINED_TICKS: Final = 3 * ELECTION_TICKS
_MIB: Final = 1024 * 1024


class Config:
    """Number and settings of a member. Tests change the fields."""

    def __init__(self, node: i64) -> None:
        assert node != NOBODY
        self.node: i64 = node
        self.election_ticks: i64 = ELECTION_TICKS
        self.heartbeat_ticks: i64 = HEARTBEAT_TICKS
        # A follower that loses its link to the leader waits a random part of this.
        self.link_lost_ticks: i64 = LINK_LOST_TICKS
        # A drained member waits so much longer than others before it stands for election.
        self.drained_ticks: i64 = DRAINED_TICKS
        # Limits for the blocks of one message, and of one read from log files.
        self.append_count_max: i64 = 1024
        self.append_bytes_max: i64 = 1 * _MIB
        # Limits for blocks in flight to one follower.
        self.inflight_count_max: i64 = 256
        self.inflight_bytes_max: i64 = 16 * _MIB
        # Blocks that are held back from a follower that no commit needs. With more, they are sent.
        self.held_count_max: i64 = 16
        self.held_bytes_max: i64 = 256 * 1024
        # Committed blocks in memory for followers that lag. Beyond it they are fed from files.
        self.window_bytes_max: i64 = 32 * _MIB
        # Blocks that are not committed. Beyond it the host stops reading from publishers.
        self.uncommitted_bytes_max: i64 = 64 * _MIB
        # Unsynced blocks of a follower. Beyond it appends are dropped until its disk is done.
        self.follower_bytes_max: i64 = 128 * _MIB
        # A non-voter that lacks at most this many blocks may be promoted.
        self.promote_lag_max: i64 = 1000

    def check(self) -> None:
        """Check the relations between limits that other modules rely on."""
        assert 0 < self.heartbeat_ticks < self.election_ticks
        assert 0 < self.link_lost_ticks <= self.election_ticks
        assert self.append_bytes_max <= self.inflight_bytes_max
        assert self.append_count_max > 0
        assert self.inflight_count_max > 0
