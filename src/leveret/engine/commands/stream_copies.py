"""Limit of the bytes that one publish writes to streams.

Queues share one record of a message in the log. A stream writes the message into a chunk of its
own, so a large message to many streams is written many times, and all of it is in one block of the
log. A block has at most 1 GiB, and many streams may be bound to one exchange.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.turn import Turn
from leveret.errors import PreconditionFailedError

COPIES_BYTES_MAX: Final = 268_435_456  # of one publish, and of one transaction
CHECKED_BYTES: Final = 1_048_576  # copies of fewer bytes are not looked at
_BYTES_PER_COPY: Final = 65_536  # that are as much work as one copy of a message (`WORK_MAX`)


def stream_bytes(queues: list[Queue], recorders: i64, size: i64) -> i64:
    """Return the bytes of a message in all its streams.

    `recorders` is the number of exchanges that write it to a stream (`x-remember`).
    """
    count = recorders
    for queue in queues:
        if isinstance(queue, Stream):
            count += 1
    return count * size


def require_copies(size: i64) -> None:
    """Raise PreconditionFailedError if the copies in streams are too large together."""
    if size > COPIES_BYTES_MAX:
        raise PreconditionFailedError(
            f"{size} bytes of copies in streams: a publish or a transaction may write at most "
            f"{COPIES_BYTES_MAX} bytes to streams"
        )


def count_copies(turn: Turn, queues: list[Queue], recorders: i64, size: i64) -> None:
    """Count the copies in streams as work; PreconditionFailedError if they are too large."""
    size = stream_bytes(queues, recorders, size)
    require_copies(size)
    turn.work += size // _BYTES_PER_COPY
