"""The state of a member and of its followers, for views and metrics."""

from mypy_extensions import i64


class Counters:
    """Events since the start."""

    def __init__(self) -> None:
        self.copies: i64 = 0
        self.transfers_failed: i64 = 0


class FollowerStatus:
    """One follower, as its leader knows it. Times are in ticks."""

    def __init__(
        self, node: i64, match: i64, state: i64, state_ticks: i64, heard_ticks: i64
    ) -> None:
        self.node: i64 = node
        self.match: i64 = match
        self.state: i64 = state  # see `leveret.cluster.raft.progress`
        self.state_ticks: i64 = state_ticks  # for how long it is in this state
        self.heard_ticks: i64 = heard_ticks  # how long ago it was heard


class Status:
    """A member at one moment."""

    def __init__(self, role: i64, term: i64, leader: i64) -> None:
        self.role: i64 = role
        self.term: i64 = term
        self.leader: i64 = leader
        self.base: i64 = 0
        self.commit: i64 = 0
        self.last: i64 = 0
        self.synced: i64 = 0
        self.may_vote = True
        self.is_holding = False
        self.uncommitted_bytes: i64 = 0
        self.window_bytes: i64 = 0
        self.transfer_target: i64 = 0
        self.followers: list[FollowerStatus] = []
