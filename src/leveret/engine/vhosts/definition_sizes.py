"""Sizes of definitions: the bytes of their names, routing keys and arguments, and of their records.

All definitions are in memory, and in the state with which each log file of a cluster's leader
begins. So a vhost has a limit on their bytes (`VhostState.definition_bytes_max`): counts alone
would allow gigabytes. The leader must write its state within an election timeout (1 s), on disks
that write less than 100 MB/s.

A definition with short names has most of its bytes in its record, and a queue takes more memory
than any other object. So each counts `RECORD_BYTES` beside its names and arguments, and a queue
`QUEUE_BYTES`. Patterns of topic and headers exchanges count the nodes and headers of their index:
a pattern of 200 bytes can take 30,000 bytes of memory.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.exchanges.binding import RECORD_BYTES
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target

QUEUE_BYTES: Final = 256


def definition_bytes(target: Target) -> i64:
    """Return the size of the definition of a queue or exchange."""
    size: i64 = len(target.name.encode("utf-8", "surrogateescape"))
    if isinstance(target, Queue):
        return QUEUE_BYTES + size + len(target.packed_arguments)
    assert isinstance(target, Exchange)
    if target.is_delayed:
        size += QUEUE_BYTES  # its messages wait in a queue of its own
    return RECORD_BYTES + size + len(target.packed_arguments)
