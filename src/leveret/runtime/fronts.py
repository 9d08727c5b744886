"""Make the protocol that serves a client of a cluster: of this node, or relayed by another node."""

import asyncio

from leveret.auth.certificates import TlsPeer
from leveret.cluster.errors import ClusterError
from leveret.cluster.relay import AMQP, AMQPS, RelayHead
from leveret.listening import Admission, Client, Relayed
from leveret.runtime.node import Node


async def make_front(
    node: Node, head: RelayHead, client: Client, relayed: Relayed | None
) -> asyncio.BaseProtocol:
    """Return the protocol for a client. `relayed` is None for a client of this node.

    Raises ClusterError.
    """
    if head.service in (AMQP, AMQPS):
        _admit(node.amqp.admission, client)
        if relayed is None:
            return node.amqp.make_protocol(client)
        return node.amqp.make_relayed(relayed, _tls_peer(head))
    if node.http is None:
        raise ClusterError("the node does not serve HTTP")
    server = await node.http.server()
    _admit(server.admission, client)
    return server.make_protocol(client) if relayed is None else server.make_relayed(relayed)


def _admit(admission: Admission, client: Client) -> None:
    """Count a client, or raise ClusterError. Its descriptor was checked by the listeners."""
    if not admission.enter(client.host, -1):
        raise ClusterError("there are too many connections")


def _tls_peer(head: RelayHead) -> TlsPeer | None:
    """Return the TLS session of a client with the node that relays it."""
    if head.service == AMQP:
        return None
    return TlsPeer(head.tls_version, head.tls_cipher, head.verifies, *head.names.texts())
