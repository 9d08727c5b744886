"""Three real nodes behind a proxy that deals each new connection to the next node, AMQP and HTTP.

Clients see one address and one broker, whichever node they reach. At the end all nodes must still
run, without a traceback in their logs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from leveret.testing import RunningCluster, cluster
from tests.clients.relay import Relay

HOST: Final = "127.0.0.1"


class DealtCluster(NamedTuple):
    """The nodes, and the addresses of the proxy."""

    nodes: RunningCluster
    amqp: tuple[str, int]
    http: tuple[str, int]


@contextlib.contextmanager
def dealt_cluster(size: int = 3) -> Iterator[DealtCluster]:
    """Run a cluster and its proxy until the end of the block."""
    with cluster(size, is_direct=True) as nodes:
        amqp = [(HOST, nodes[name].amqp_port) for name in nodes.nodes]
        http = [(HOST, nodes[name].http_port) for name in nodes.nodes]
        with Relay(amqp) as amqp_relay, Relay(http) as http_relay:
            yield DealtCluster(nodes, amqp_relay.address, http_relay.address)
        for name in nodes.nodes:
            process, log = nodes[name].process, nodes[name].log
            assert process is not None
            assert process.poll() is None, f"node {name} has ended:\n{log}"
            assert "Traceback" not in log, f"node {name}:\n{log}"
