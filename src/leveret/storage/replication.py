"""The connection between the log of a leader and the other nodes of its cluster.

The runtime makes a `Replication` each time its node begins to lead, and gives it to `Store.open`.
The log calls `append` with every block that it takes from the journal. Confirms and everything else
that depends on a block wait until `ReplicatedLog.commit_to` names it. All functions are called on
the event loop, and never call the log themselves.
"""

from collections.abc import Callable


class Replication:
    """The functions of the cluster that the log of a leader calls."""

    def __init__(
        self,
        term: int,
        *,
        append: Callable[[int, int, int, bytes], None],
        on_synced: Callable[[int], None],
        is_full: Callable[[], bool],
        has_lease: Callable[[], bool],
        terms: Callable[[], list[tuple[int, int]]],
        members: Callable[[], bytes],
    ) -> None:
        self.term = term  # the term in which this node leads
        # Send a block to the other nodes: its number, term, kind, and bytes with their head.
        self.append = append
        self.on_synced = on_synced  # the block with this number is on this node's disk
        # Return True while no further block may be appended: too many bytes are not committed, or
        # another node is about to lead. Call `Log.start_writing` if it ends without a commit.
        self.is_full = is_full
        # Return False while another node may lead already: then even deliveries wait for commits.
        self.has_lease = has_lease
        self.terms = terms  # return each term of the log, and the number of its first block
        self.members = members  # return the current members, encoded by the cluster
