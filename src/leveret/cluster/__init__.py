"""The cluster: state that several nodes keep together.

- `raft`       consensus of one group of nodes on one log; see `leveret.cluster.raft`
- `host`       all groups of one node: one turn of writes, messages and answers for all of them
- `lease`      which nodes are alive
- `store`      the disk of all groups of a node, one log; see `leveret.cluster.store`
- `links`      the connections of a node to the others; `handshake` authenticates them
- `node`       a running node: drives a host with its store, its links and the time
- `commands`   the commands of a replicated queue, as bytes of an entry
- `machine`    the replicated queue: applies commands, the same on every node

Only `links`, `link`, `node`, `writer`, `incarnation` and `store.files` do I/O.
"""
