"""The cluster: nodes that keep one log together. `leveret.runtime.cluster_node` owns it.

- `raft`       consensus of the nodes on the blocks of one log; see `leveret.cluster.raft`
- `links`      the connections of a node to the others; `handshake` and `admission` guard them
- `host`       feeds the Raft member of a node, and writes for it
- `forming`    founds a cluster, lets nodes in and promotes them, and serves commands
- `member`     puts these parts together: `ClusterMember`

Only `links` and `link` do I/O.
"""
