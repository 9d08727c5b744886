"""The settings of one member, with the limits of everything that could grow.

Times are in ticks; the host decides how long one is. A follower that has not heard of its leader
for `election_ticks`, and up to as many more by chance, asks for votes.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY

ELECTION_TICKS: Final = 10
BEAT_TICKS: Final = 2


class Config:
    """Who this member is and how it behaves; tests change the fields."""

    def __init__(self, node: i64, group: i64) -> None:
        assert node != NOBODY
        self.node: i64 = node
        # Unique for each incarnation of a group: messages of a deleted group of the same name
        # carry another number and are refused.
        self.group: i64 = group
        self.election_ticks: i64 = ELECTION_TICKS
        self.beat_ticks: i64 = BEAT_TICKS
        # One message of entries
        self.append_count_max: i64 = 1024
        self.append_bytes_max: i64 = 1024 * 1024
        # Entries under way to one follower
        self.inflight_count_max: i64 = 256
        self.inflight_bytes_max: i64 = 16 * 1024 * 1024
        # Entries that are proposed and not yet committed
        self.uncommitted_bytes_max: i64 = 64 * 1024 * 1024
        # Entries handed out to be applied at once
        self.apply_count_max: i64 = 4096
        self.reads_max: i64 = 10_000  # waiting at once
        self.chunk_bytes: i64 = 64 * 1024
        self.snapshot_bytes_max: i64 = 1024 * 1024 * 1024
        # A non-voter may vote once it lacks no more than this.
        self.promote_lag_max: i64 = 1000
        # Applied entries that a snapshot leaves in memory for followers that are behind.
        self.trailing: i64 = 1000
        # And how many at most for those that are getting a snapshot.
        self.trailing_max: i64 = 100_000

    def check(self) -> None:
        """The relations between limits that everything else relies on."""
        assert 0 < self.beat_ticks < self.election_ticks
        assert self.append_bytes_max <= self.inflight_bytes_max
        assert self.append_count_max > 0
        assert self.inflight_count_max > 0
        assert self.apply_count_max > 0
        assert self.chunk_bytes > 0
