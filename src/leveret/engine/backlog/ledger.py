"""Record in the log which messages of one queue exist and which are settled.

The queue tells its ledger about every message that arrives, is delivered, comes back or is settled.
The ledger writes a message to the journal at once, so that the message has a position. It writes
everything else at the end of the turn, when neighbouring acks have become one run of numbers.

On a node without a log there is no journal, and the ledger does nothing.
"""

from mypy_extensions import i64

from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.settled_numbers import SettledNumbers
from leveret.engine.message import LOGGED, Message
from leveret.journal.journal import Journal
from leveret.journal.records import SPILLED


class Ledger:
    """The records of one queue in the log."""

    def __init__(self, journal: Journal | None, durable: bool, unlogged: "list[Ledger]") -> None:
        self.id: i64 = 0  # number of the queue in the log; never reused
        self.journal = journal
        self.durable = durable
        self.closed = False  # the queue is deleted, and the log has recorded it
        self.settled = SettledNumbers()  # settled sequence numbers, if the queue is durable
        # Returns, failures and due time of messages that came back, by sequence number.
        self.returned: dict[int, tuple[int, int, int]] = {}
        self.delivered_seq: i64 = -1  # messages up to this one may have been delivered
        self._unlogged = unlogged  # the turn's column of ledgers with something to write
        self._is_listed = False  # this ledger is in that column
        self._written_seq: i64 = -1  # the last `delivered_seq` that was written
        self._runs: list[int] = []  # settled in this turn: first and last numbers in turn

    def write_message(self, message: Message, due_ms: i64) -> None:
        """Write a message that must survive a restart."""
        self._write(message, self.id, due_ms)
        message.flags |= LOGGED

    def spill(self, message: Message) -> None:
        """Write a message to the log to free its memory; a restart ignores this record."""
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
        """Record that a message is settled: it must not come back after a restart."""
        journal = self.journal
        if journal is not None:
            journal.release(message.position)
            self._forget(message)

    def hand_over(self, message: Message) -> None:
        """Record that a message is settled because this turn moved it to another queue.

        Its log position is released only after the block with the new copy is on disk. A crash
        before that keeps this copy.
        """
        journal = self.journal
        if journal is not None:
            journal.release_later(message.position)
            self._forget(message)

    def skip(self, seq: i64) -> None:
        """Record that no message has this sequence number."""
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
            self._add_settled(seq)

    def forget_run(self, run: PagedRun) -> None:
        """Record that all messages of a run are settled."""
        journal = self.journal
        assert journal is not None
        journal.release_many(run.file, run.left())
        if self.closed or not self.durable:
            return
        if self.returned:
            for seq in run.seqs[run.at :]:
                self.returned.pop(seq, None)
        for first, last in run.stretches():
            self.settled.add_run(first, last)
            self._add_settled(first)
            self._runs[-1] = last

    def drop_counts(self, counts: dict[int, int]) -> None:
        """Release the paged messages of a deleted queue, given as a count per log file."""
        assert self.closed
        journal = self.journal
        assert journal is not None
        for file, count in counts.items():
            journal.release_many(file, count)

    def _add_settled(self, seq: i64) -> None:
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
        """Record that a message was delivered: after a restart it is a redelivery."""
        if message.flags & LOGGED and message.seq > self.delivered_seq:
            self.delivered_seq = message.seq
            if not self._is_listed:
                self._list()

    def write_return(self, message: Message, due_ms: i64) -> None:
        """Write that a message came back; `due_ms` is 0 or the time until which it waits."""
        journal = self.journal
        assert journal is not None
        journal.write_returned(self.id, message.seq, message.returns, message.failures, due_ms)
        self.returned[message.seq] = (message.returns, message.failures, due_ms)

    def write(self) -> None:
        """Write the settled numbers and the last delivered number, at the end of a turn."""
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
