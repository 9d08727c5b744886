"""The store of jobs on the broker's own engine and log: the default, with nothing else to run.

A namespace is the vhost of its name, a topic the durable queue of its name in it, and a job a
persistent message: what HTTP puts in AMQP can take out, and the reverse.

- `EmbeddedStore`  keeps the contract of `leveret.job_service.store`
- `Host`           what it asks of the node
- `Topic`          one queue, its leases, and who waits for it
- `Envelope`       what a message says of its job, in its headers
"""

from leveret.job_service.embedded.host import Host
from leveret.job_service.embedded.store import EmbeddedStore

__all__ = ["EmbeddedStore", "Host"]
