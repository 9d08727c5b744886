"""The settings of a host: limits, and times in ticks, which apply to all of its groups.

The caller decides how long a tick is; 100 ms is usual. All nodes of a cluster should have the same
settings.
"""

from mypy_extensions import i64

from leveret.cluster.raft.config import ELECTION_TICKS, HEARTBEAT_TICKS, Config


class HostConfig:
    """How a host behaves; tests change the fields."""

    def __init__(self) -> None:
        self.election_ticks: i64 = ELECTION_TICKS
        self.heartbeat_ticks: i64 = HEARTBEAT_TICKS  # of leaders, and between nodes
        # After this time without a heartbeat of a node, its groups look for another leader.
        self.lease_ticks: i64 = ELECTION_TICKS
        # A group in which nothing has happened for so long is put to sleep.
        self.sleep_ticks: i64 = 3 * ELECTION_TICKS
        # Groups that are woken at one tick, when a node is lost or comes back: each may bring a
        # round of votes, and their disks and links are shared.
        self.wakes_max: i64 = 250
        # Entries of one turn, after which groups wait for the next: a block is built in memory.
        self.turn_bytes_max: i64 = 16 * 1024 * 1024

    def check(self) -> None:
        """The relations between times that leases rely on."""
        assert 0 < self.heartbeat_ticks < self.lease_ticks <= self.election_ticks
        assert self.wakes_max > 0

    def group(self, node: i64, group: i64) -> Config:
        """The settings of a member."""
        config = Config(node, group)
        config.election_ticks = self.election_ticks
        config.heartbeat_ticks = self.heartbeat_ticks
        return config
