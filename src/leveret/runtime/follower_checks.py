"""Health checks about one node, as a node that follows answers them itself."""

from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import unquote

from leveret.http.framework.node import ClusterNodeFacts, Listener
from leveret.http.management.health import (
    OK,
    CheckResult,
    alarms_result,
    certificates_result,
    follower_quorum_result,
    period_ms,
    port_of,
    port_result,
    protocol_result,
)
from leveret.http.management.nodes import LOW_ON_DISK


class CheckedNode(Protocol):
    """The facts of a node that its health checks use."""

    def facts(self) -> dict[str, Any]:
        """Return the cluster as this node sees it, as JSON."""

    @property
    def bound(self) -> Sequence[Listener]:
        """Return the addresses that the node listens on for clients."""

    def nodes(self) -> list[ClusterNodeFacts]:
        """Return all nodes of the cluster, by name."""

    def certificates(self) -> Sequence[tuple[str, int]]:
        """Return the name and the end (in ms since 1970) of each certificate in use."""

    def now_ms(self) -> int:
        """Return the time of the node."""

    def is_disk_short(self) -> bool:
        """Return True if the disk of this node is full, or nearly so."""


def own_check(node: CheckedNode, check: str) -> CheckResult | None:
    """Return the result of a check that is about this node; None if it is not.

    It is also None if this node does not know the arguments. A leader of another version may
    know them.
    """
    match [unquote(part) for part in check.rstrip("/").split("/")]:
        case ["local-alarms"]:  # this node has no queues in memory
            name = node.facts()["name"]
            return alarms_result([(name, LOW_ON_DISK)] if node.is_disk_short() else [])
        case ["below-node-connection-limit"]:  # it has accepted the connection
            return OK
        case ["node-is-quorum-critical"]:
            return follower_quorum_result(node.nodes(), node.facts()["name"])
        case ["port-listener", text] if (port := port_of(text)) is not None:
            return port_result(port, node.bound)
        case ["protocol-listener", protocols]:
            return protocol_result(protocols, node.bound)
        case ["certificate-expiration", count, unit] if (
            within_ms := period_ms(count, unit)
        ) is not None:
            return certificates_result(node.now_ms() + within_ms, node.certificates())
    return None
