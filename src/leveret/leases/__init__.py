"""Leases: a named reader holds messages of a queue, in epochs, until it acks them.

- `ReaderLease`    the messages that one reader holds of one queue
- `Epoch`          a batch of a lease; its messages do not change until it is acked
- `ReaderLeases`   all leases of a node
"""

from leveret.leases.lease import Epoch, ReaderLease
from leveret.leases.reader_leases import ReaderLeases

__all__ = ["Epoch", "ReaderLease", "ReaderLeases"]
