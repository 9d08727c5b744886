"""Life events: what happened to the messages of a queue or an exchange that remembers.

A queue or exchange with the argument `x-remember` has a `Chronicle` and tells it of every step in
the life of a message; nobody else pays for it. What becomes of the events is the business of a
subclass (`leveret.engine.streams.chronicle` writes them to a stream).

A copy of a message in a queue is named by one number: the number of the queue in the log, and its
sequence number there. A publish is named by where its event stands in the stream.

Every copy ends by exactly one of `FINAL`; all other events are on the way there.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.message import Address

# At an exchange
PUBLISHED: Final = "published"
ROUTED: Final = "routed"  # to one queue
HELD: Final = "held"  # by a delayed exchange on its way, until it is due
RETURNED: Final = "returned"  # nobody takes it, and the publisher was told
UNROUTABLE: Final = "unroutable"  # nobody takes it
# At a queue
DUPLICATE: Final = "duplicate"  # the queue knows it already: no copy was made
QUEUED: Final = "queued"
DELIVERED: Final = "delivered"
NACKED: Final = "nacked"
REJECTED: Final = "rejected"
TIMED_OUT: Final = "timed out"  # was held for too long
REQUEUED: Final = "requeued"
DUE: Final = "due"  # was scheduled: goes on under another number
# At a queue, the last of a copy
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
    """The number of a copy: of its queue in the log, and its own there."""
    return queue << _SEQ_BITS | seq


def queue_of_copy(number: i64) -> i64:
    """The number of the queue of a copy."""
    return number >> _SEQ_BITS


def seq_of_copy(number: i64) -> i64:
    """The number of a copy in its queue."""
    return number & ((1 << _SEQ_BITS) - 1)


class Chronicle:
    """Is told what happens."""

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
        """A message came: PUBLISHED or QUEUED. The number of the event itself.

        `publish` is the number of the publish (at a further exchange: that of the one before)
        and `cause` that of the copy which was dead-lettered, where they are known; 0 = they are
        not.
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
        """Something happened to a message, or to all from `number` to `last`."""
        raise NotImplementedError

    def note_due(self, number: i64, next_number: i64, queue: str, address: Address) -> None:
        """A scheduled message is due, and takes its place in the queue under another number."""
        raise NotImplementedError
