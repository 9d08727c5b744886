"""The work of a host in one turn, and the results when it is done.

The order matters, as in a `Ready` of one group: all `writes` go into one block, which is synced if
`must_sync` is set. Only then the messages are sent. Then `Host.done` is called.
"""

from mypy_extensions import i64

from leveret.cluster.machine import Effect
from leveret.cluster.raft.messages import SNAPSHOT, Message
from leveret.cluster.raft.ready import ReadAnswer, Ready


class HostTurn:
    """The work of one turn, of all groups that have any."""

    def __init__(self) -> None:
        # To be written in one block, in this order
        self.writes: list[tuple[int, Ready]] = []
        self.must_sync = False  # before anything below
        self.size_bytes: i64 = 0  # of the entries to be written
        # To be sent after that, by target
        self.messages: dict[int, list[Message]] = {}
        # Chunks of snapshots, for a stream of their own: they must not hold up heartbeats.
        self.bulk: dict[int, list[Message]] = {}
        # For the host: every group of this turn, by number
        self.readies: dict[int, Ready] = {}

    def is_empty(self) -> bool:
        return not self.readies and not self.messages

    def add(self, group: i64, ready: Ready) -> None:
        self.readies[group] = ready
        if ready.has_writes():
            self.writes.append((int(group), ready))
            self.must_sync = self.must_sync or ready.must_sync
            for entry in ready.entries:
                self.size_bytes += entry.size_bytes()
        for message in ready.messages:
            self.send(message)

    def send(self, message: Message) -> None:
        lists = self.bulk if message.kind == SNAPSHOT else self.messages
        found = lists.get(message.target)
        if found is None:
            lists[message.target] = [message]
        else:
            found.append(message)


class Outcome:
    """What a turn has brought to one group: to be performed, answered and told."""

    def __init__(self, group: i64, term: i64, role: i64, leader: i64) -> None:
        self.group: i64 = group
        self.term: i64 = term
        self.role: i64 = role
        self.leader: i64 = leader  # 0 if none is known
        self.is_changed = False  # term, role or leader, since the last outcome of the group
        self.effects: list[Effect] = []  # of the leader, in the order of its log
        self.answers: list[
            ReadAnswer
        ] = []  # reads that may be served now: all they need is applied
