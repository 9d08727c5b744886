"""Leases: messages of a queue that a named reader holds in epochs until it acks them.

- `Lease`    what a reader holds of a queue
- `Epoch`    some messages of it, the same ones for as long as it is not acked
- `Leases`   all leases of a node
"""

from leveret.leases.keeping import Leases
from leveret.leases.lease import Epoch, Lease

__all__ = ["Epoch", "Lease", "Leases"]
