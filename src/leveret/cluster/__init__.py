"""The cluster: nodes that keep one log together. `leveret.runtime.cluster_node` owns it.

- `raft`       consensus of the nodes on the blocks of one log; see `leveret.cluster.raft`
- `links`      the connections of a node to the others; `handshake` and `admission` guard them
- `host`       passes events to the Raft member of a node, and writes its blocks
- `forming`    creates a cluster, adds and promotes nodes, and carries out operators' commands
- `member`     puts these parts together: `ClusterMember`

Only `links` and `link` do I/O.
"""
