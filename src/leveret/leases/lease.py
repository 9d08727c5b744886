"""A lease: the messages that a named reader holds of a queue, in epochs, and its register entry.

An epoch is a fixed list of messages: which ones, in which order, and when each arrived. The entry
of a lease names them as runs of sequence numbers; the messages themselves are in the log.

    entry = {"queue": number, "acked": epoch, "user": name, "epochs": [[epoch, runs], ...]}
    runs  = first, last, time in milliseconds, first, last, time, ...

`queue` is the number of the queue in the log. A queue that was deleted and declared again has
another number.
"""

import json
from array import array
from typing import Final

from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Session

KIND: Final = "lease"  # kind of register entries


class Epoch:
    """A batch of messages. The reader may read it again and again until it acks it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seqs: array[int] = array("q")
        self.times_ms: array[int] = array("q")
        self.runs = 0  # number of runs in the entry
        self.rows: list[tuple[int, Message]] = []  # arrival time and message; without lost messages
        self.bytes = 0  # size of the bodies
        self.missing = 0  # messages that a restart has lost: transient or damaged

    def note(self, message: Message, time_ms: int) -> None:
        """Add a message."""
        seqs, times_ms = self.seqs, self.times_ms
        if not seqs or seqs[-1] + 1 != message.seq or times_ms[-1] != time_ms:
            self.runs += 1
        seqs.append(message.seq)
        times_ms.append(time_ms)
        self.hold(message, time_ms)

    def hold(self, message: Message, time_ms: int) -> None:
        """Keep a message whose number is already in the epoch."""
        self.rows.append((time_ms, message))
        self.bytes += len(message.body)


class ReaderLease:
    """The messages that one reader holds of one queue."""

    def __init__(self, queue: Queue, reader: str, session: Session) -> None:
        self.queue = queue
        self.reader = reader
        self.session = session
        self.acked = 0  # the last acked epoch
        self.epochs: dict[int, Epoch] = {}  # in order
        self.is_busy = False  # an epoch is being taken or acked, over several turns

    def last(self) -> int:
        """Return the number of the newest epoch."""
        return max(self.epochs, default=self.acked)

    def key(self) -> str:
        return json.dumps([self.queue.vhost, self.queue.name, self.reader])

    def entry(self) -> str:
        epochs = [[e.number, runs_of(e.seqs, e.times_ms)] for e in self.epochs.values()]
        return json.dumps(
            {
                "queue": int(self.queue.ledger.id),
                "acked": self.acked,
                "user": self.session.outlet.user_name,
                "epochs": epochs,
            }
        )


def runs_of(seqs: "array[int]", times_ms: "array[int]") -> list[int]:
    """Return runs of consecutive messages with the same time."""
    runs: list[int] = []
    for seq, time_ms in zip(seqs, times_ms, strict=True):
        if runs and runs[-2] == seq - 1 and runs[-1] == time_ms:
            runs[-2] = seq
        else:
            runs += [seq, seq, time_ms]
    return runs


def epoch_of(number: int, runs: list[int]) -> Epoch:
    """Return the epoch of an entry, without its messages."""
    epoch = Epoch(number)
    for at in range(0, len(runs), 3):
        seqs = range(runs[at], runs[at + 1] + 1)
        epoch.seqs.extend(seqs)
        epoch.times_ms.extend([runs[at + 2]] * len(seqs))
    return epoch
