"""Life events: every step in the life of a message, for queues and exchanges with `x-remember`.

A queue or exchange with the argument `x-remember` has a `Chronicle` and tells it about every event.
Other queues and exchanges have none and pay nothing. A subclass stores the events:
`leveret.engine.streams.chronicle` writes them to a stream.

    copy id     identifies a copy of a message: number of its queue in the log << 40 | its sequence
                number in the queue
    publish     identified by the offset of its event in the stream

Invariant: the last event of a copy is one of `FINAL`, and no earlier event is.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.message import Address

# Events of exchanges
PUBLISHED: Final = "published"
ROUTED: Final = "routed"  # to one queue
HELD: Final = "held"  # by a delayed exchange, until the message is due
RETURNED: Final = "returned"  # no queue takes it, and the publisher was told
UNROUTABLE: Final = "unroutable"  # no queue takes it
# Events of queues
DUPLICATE: Final = "duplicate"  # the queue remembers its key: no copy was made
QUEUED: Final = "queued"
DELIVERED: Final = "delivered"
NACKED: Final = "nacked"
REJECTED: Final = "rejected"
TIMED_OUT: Final = "timed out"  # a consumer held it too long
REQUEUED: Final = "requeued"
DUE: Final = "due"  # a scheduled message became ready and got a new sequence number
# Final events of queues
ACKED: Final = "acked"
DROPPED: Final = "dropped"
EXPIRED: Final = "expired"
DEAD_LETTERED: Final = "dead-lettered"
PARKED: Final = "parked"
PURGED: Final = "purged"
MOVED: Final = "moved"  # to another queue, by a task
DELETED: Final = "deleted"  # with its queue

FINAL: Final = (ACKED, DROPPED, EXPIRED, DEAD_LETTERED, PARKED, PURGED, MOVED, DELETED)

_SEQ_BITS: Final = 40


def copy_id(queue: i64, seq: i64) -> i64:
    """Return the id of a copy from its queue's number in the log and its sequence number."""
    return queue << _SEQ_BITS | seq


def queue_of_copy(number: i64) -> i64:
    """Return the number of a copy's queue in the log."""
    return number >> _SEQ_BITS


def seq_of_copy(number: i64) -> i64:
    """Return the sequence number of a copy in its queue."""
    return number & ((1 << _SEQ_BITS) - 1)


class Chronicle:
    """Interface to record life events."""

    def note_content(
        self,
        event: str,
        number: i64,
        publish: i64,
        cause: i64,
        queue: str,
        address: Address,
        header: bytes,
        body: bytes,
    ) -> i64:
        """Record PUBLISHED or QUEUED with the content, and return the number of the event.

        `number` is the copy id. `publish` is the number of the publish; at a further exchange, of
        the publish at the exchange before it. `cause` is the id of the copy that was dead-lettered.
        0 = unknown.
        """
        raise NotImplementedError

    def note(
        self,
        event: str,
        number: i64,
        last: i64,
        queue: str,
        reason: str,
        consumer: str,
        address: Address,
    ) -> None:
        """Record an event of all copies from `number` to `last`, which may be the same."""
        raise NotImplementedError

    def note_due(self, number: i64, next_number: i64, queue: str, address: Address) -> None:
        """Record that a scheduled message is due and gets a new copy id."""
        raise NotImplementedError
