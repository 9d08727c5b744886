"""Sizes of definitions: the bytes of their names, routing keys and arguments.

All definitions are in memory, and in the state with which each log file of a cluster's leader
begins. So a vhost has a limit on their bytes (`VhostState.definition_bytes_max`): counts alone
would allow gigabytes. The leader must write its state within an election timeout (1 s), on disks
that write less than 100 MB/s.
"""

from mypy_extensions import i64

from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target


def definition_bytes(target: Target) -> i64:
    """Return the size of the definition of a queue or exchange."""
    size: i64 = len(target.name.encode("utf-8", "surrogateescape"))
    if isinstance(target, Queue):
        return size + len(target.packed_arguments)
    assert isinstance(target, Exchange)
    return size + len(target.packed_arguments)
