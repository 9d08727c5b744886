"""The nodes of the cluster: their names, which of them run, and whether one is critical.

A node without a cluster is its only node.
"""

from collections.abc import Sequence

from leveret.http.framework.node import ClusterNodeFacts, NodeView


def cluster_nodes(node: NodeView) -> Sequence[ClusterNodeFacts]:
    """Return all nodes of the cluster of a node; the node itself is among them."""
    cluster = node.cluster
    found = cluster.nodes() if cluster is not None else []
    if not found:
        return [ClusterNodeFacts(node.node_name, True, True, True, 0)]
    return found


def names_of(nodes: Sequence[ClusterNodeFacts]) -> list[str]:
    return [one.name for one in nodes]


def running_names(nodes: Sequence[ClusterNodeFacts]) -> list[str]:
    return [one.name for one in nodes if one.is_running]


def is_critical(nodes: Sequence[ClusterNodeFacts], name: str) -> bool:
    """Return True if the cluster has no majority any more when this node stops."""
    voters = [one for one in nodes if one.is_voter]
    left = [one for one in voters if one.is_running and one.can_write and one.name != name]
    return len(left) <= len(voters) // 2
