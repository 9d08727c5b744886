"""The state that a member starts with: everything it had synced when it stopped.

The log itself stays on disk. The core needs only its ends, its terms and the changes of members.
After a copy of the leader's directory, a member starts with the log of the copy and its own
`HardState`.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.members import NOBODY, Members

UNKNOWN_PROMISE: Final = 0x3FFF_FFFF_FFFF_FFFF  # more than any index


class HardState:
    """Small state that is synced before a message may rely on it.

    `losses` counts how often this member has lost blocks that it may have acknowledged. Its host
    raises it, clears `may_vote`, and syncs both before the member starts again. `promised_index` is
    the highest block that it may have acknowledged; `UNKNOWN_PROMISE` if it is unknown. The member
    votes again when it has all of these blocks from a leader.
    """

    def __init__(self, term: i64 = 0, vote: i64 = NOBODY) -> None:
        self.term: i64 = term
        self.vote: i64 = vote
        self.losses: i64 = 0
        self.may_vote = True
        self.promised_index: i64 = UNKNOWN_PROMISE

    def copy(self) -> "HardState":
        made = HardState(self.term, self.vote)
        made.losses = self.losses
        made.may_vote = self.may_vote
        made.promised_index = self.promised_index
        return made

    def equals(self, other: "HardState") -> bool:
        return (
            self.term == other.term
            and self.vote == other.vote
            and self.losses == other.losses
            and self.may_vote == other.may_vote
            and self.promised_index == other.promised_index
        )

    def note_loss(self, promised_index: i64) -> None:
        """Note that blocks are lost that may have been acknowledged."""
        self.losses += 1
        self.may_vote = False
        self.promised_index = promised_index


class Stored:
    """The state on disk. A node that joins starts with an empty one: the leader tells it all."""

    def __init__(self, hard: HardState) -> None:
        self.hard = hard
        self.base_index: i64 = 0  # blocks up to this one are not in log files any more
        self.last_index: i64 = 0
        self.commit: i64 = 0  # known to be committed; may be older than the real commit index
        # The term of the base and of all blocks after it: rows of (term, first index).
        self.terms: list[tuple[int, int]] = []
        # Members in force from an index on; the first row is in force at the base.
        self.members: list[tuple[int, Members]] = []
        # The log has a hole: only a copy of the leader's directory can mend this member, which has
        # lost blocks and may not vote.
        self.needs_copy = False
