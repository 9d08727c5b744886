"""Leases: messages of a queue that a named reader holds in epochs until it acks them.

- `ReaderLease`    what a reader holds of a queue
- `Epoch`    some messages of it, the same ones for as long as it is not acked
- `ReaderLeases`   all leases of a node
"""

from leveret.leases.lease import Epoch, ReaderLease
from leveret.leases.reader_leases import ReaderLeases

__all__ = ["Epoch", "ReaderLease", "ReaderLeases"]
