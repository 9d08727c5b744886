"""Federation: exchanges and queues that receive messages from other brokers, the upstreams.

- `FederationManager`  starts, ends and lists the links of a node
- `upstreams`          parses the parameters `federation-upstream` and `federation-upstream-set`
- `link`               one link: a shovel from an upstream to a local exchange or queue
- `upstream_source`    the upstream end of a link: the part that both kinds share
- `exchange_source`    the upstream end of an exchange link
- `queue_source`       the upstream end of a queue link
- `travel`             the headers that say where a message or a binding has been

A policy names the upstreams of an exchange or a queue. The formats of headers, arguments and names
are RabbitMQ's, so that the upstream can be RabbitMQ or Leveret.
"""

from leveret.federation.manager import FederationManager

__all__ = ["FederationManager"]
