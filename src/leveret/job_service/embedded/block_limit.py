"""Limits the payloads that are written again in one block of the log.

A job that fails, or becomes ready before its time, is written again with its payload. One call may
name a thousand jobs of 4 MiB, and thousands of leases may end in one moment. A block of the log has
at most 1 GiB (`BLOCK_BYTES_MAX`): the log fails at a larger one, and writes nothing more. So these
changes wait while many bytes wait for the next block.
"""

from typing import Final

from leveret.engine.broker import Broker

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
LATER_MS: Final = 20  # until leases that ran out are looked at again


def is_block_full(broker: Broker) -> bool:
    """Return whether no further job should be written again before the log has taken a block."""
    journal = broker.turn.journal
    return journal is not None and journal.waiting_bytes() > WAITING_BYTES_MAX
