"""The connection between the log of a leader and the other nodes of its cluster.

The runtime makes a `Replication` for each time that its node leads, and gives it to `Store.open`.
The log then hands over every block when it takes it from the journal, and waits with everything
that depends on the block until `Log.commit_to` names it. All functions are called on the event
loop, and never call the log themselves.
"""

from collections.abc import Callable


class Replication:
    """What the log of a leader asks of the cluster."""

    def __init__(
        self,
        term: int,
        *,
        append: Callable[[int, int, int, bytes], None],
        on_synced: Callable[[int], None],
        is_full: Callable[[], bool],
        terms: Callable[[], list[tuple[int, int]]],
        members: Callable[[], bytes],
    ) -> None:
        self.term = term  # in which this node leads
        # Number, term, kind and bytes of a block, head included: send it to the other nodes.
        self.append = append
        self.on_synced = on_synced  # the block with this number is on this node's disk
        # True while no further block may be appended: too many bytes are not committed, or the
        # office is being handed over. Call `Log.start_writing` when it ends without a commit.
        self.is_full = is_full
        self.terms = terms  # each term of the log, and the number of its first block
        self.members = members  # the members in force, encoded by the cluster
