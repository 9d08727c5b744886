"""What the log knows of one queue: which messages stand in it, and which are done with.

The queue tells its ledger of every message that comes, is delivered, comes back or is done with.
The ledger writes messages to the journal at once, so that they have a position, and the rest at the
end of the turn, where acks of neighbours have become one run of numbers.

Where the node has no log there is no journal, and the ledger does nothing.
"""

from mypy_extensions import i64

from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.settled_numbers import SettledNumbers
from leveret.engine.message import LOGGED, Message
from leveret.journal.journal import Journal
from leveret.journal.records import SPILLED


class Ledger:
    """One queue's account in the log."""

    def __init__(self, journal: Journal | None, durable: bool, unlogged: "list[Ledger]") -> None:
        self.id: i64 = 0  # names the queue in the log; never used again
        self.journal = journal
        self.durable = durable
        self.closed = False  # the queue is deleted, and the log knows
        self.settled = SettledNumbers()  # sequence numbers that are done with, if it is durable
        self.returned: dict[int, tuple[int, int, int]] = {}  # returns, failures, due time
        self.delivered_seq: i64 = -1  # all up to this one may have been delivered
        self._unlogged = unlogged  # the turn's column of ledgers that have something to write
        self._is_listed = False
        self._written_seq: i64 = -1  # `delivered_seq` as the log has it
        self._runs: list[int] = []  # gone since the last turn: first and last numbers in turn

    def write_message(self, message: Message, due_ms: i64) -> None:
        """Keep a message for the next start."""
        self._write(message, self.id, due_ms)
        message.flags |= LOGGED

    def spill(self, message: Message) -> None:
        """Write a message only to have it out of memory; the next start does not look at it."""
        self._write(message, SPILLED, 0)

    def _write(self, message: Message, owner: i64, due_ms: i64) -> None:
        journal = self.journal
        assert journal is not None
        message.position = journal.write_message(
            owner,
            message.seq,
            message.expires_ms,
            due_ms,
            message.priority,
            message.flags,
            message.address.record(),
            message.header,
            message.body,
        )

    def forget(self, message: Message) -> None:
        """A message is done with: it must not come back after a restart."""
        journal = self.journal
        if journal is not None:
            journal.release(message.position)
            self._forget(message)

    def hand_over(self, message: Message) -> None:
        """A message is done with here because this turn has written it for another queue.

        Until that is on disk, this copy is the one that counts.
        """
        journal = self.journal
        if journal is not None:
            journal.release_later(message.position)
            self._forget(message)

    def skip(self, seq: i64) -> None:
        """A number that no message has."""
        if self.journal is not None and self.durable and not self.closed:
            self.settled.add(seq)

    def _forget(self, message: Message) -> None:
        if self.closed or not self.durable:
            return
        seq = message.seq
        self.settled.add(seq)
        if self.returned:
            self.returned.pop(seq, None)
        if message.flags & LOGGED:
            self._add(seq)

    def forget_run(self, run: PagedRun) -> None:
        """Messages that are in the log alone are done with."""
        journal = self.journal
        assert journal is not None
        journal.release_many(run.file, run.left())
        if self.closed or not self.durable:
            return
        for seq in run.seqs[run.at :]:
            self.settled.add(seq)
            if self.returned:
                self.returned.pop(seq, None)
            self._add(seq)

    def drop_counts(self, counts: dict[int, int]) -> None:
        """The queue is deleted: so many messages of each log file, in the log alone, are gone."""
        assert self.closed
        journal = self.journal
        assert journal is not None
        for file, count in counts.items():
            journal.release_many(file, count)

    def _add(self, seq: i64) -> None:
        runs = self._runs
        if runs and runs[-1] == seq - 1:
            runs[-1] = seq
        else:
            runs.append(seq)
            runs.append(seq)
            if not self._is_listed:
                self._list()

    def _list(self) -> None:
        self._is_listed = True
        self._unlogged.append(self)

    def note_delivered(self, message: Message) -> None:
        """A message has been delivered; if it comes again, then as a redelivery."""
        if message.flags & LOGGED and message.seq > self.delivered_seq:
            self.delivered_seq = message.seq
            if not self._is_listed:
                self._list()

    def write_return(self, message: Message, due_ms: i64) -> None:
        """A message came back, perhaps to wait."""
        journal = self.journal
        assert journal is not None
        journal.write_returned(self.id, message.seq, message.returns, message.failures, due_ms)
        self.returned[message.seq] = (message.returns, message.failures, due_ms)

    def write(self) -> None:
        """End of a turn: write which messages are gone, and how far the queue was delivered."""
        self._is_listed = False
        journal = self.journal
        if journal is None or self.closed or not self.durable:
            return
        if self._runs:
            journal.write_gone(self.id, self._runs)
            self._runs = []
        if self.delivered_seq > self._written_seq:
            self._written_seq = self.delivered_seq
            journal.write_mark(self.id, self.delivered_seq)
