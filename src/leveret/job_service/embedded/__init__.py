"""The store of jobs on the broker's own engine and log. It is the default and needs no server.

A namespace is the vhost of its name, a topic is the durable queue of its name in that vhost, and a
job is a persistent message. AMQP consumers can take jobs that HTTP enqueued, and the reverse.

- `EmbeddedStore`  the calls of `leveret.job_service.store`
- `Host`           the node, as the store needs it
- `Topic`          one queue, its leases, and the calls that wait for its jobs
- `Envelope`       the headers of a message that describe its job
"""

from leveret.job_service.embedded.host import Host
from leveret.job_service.embedded.store import EmbeddedStore

__all__ = ["EmbeddedStore", "Host"]
