"""The cluster: what several nodes keep together.

- `raft`      the consensus of one group of nodes on one log; see `leveret.cluster.raft`
- `host`      all groups of one node: one turn of writes, messages and answers for all of them
- `lease`     which nodes live
- `store`     the disk of all groups of a node, one log; see `leveret.cluster.store`
- `links`     the connections of a node to the others; `hello` how two of them meet
- `node`      a running node: drives a host with its store, its links and the time
- `commands`  what can be done to a replicated queue, as bytes of an entry
- `machine`   the replicated queue: applies commands, the same on every node

All is pure but `links` with `link`, `node` with `writer`, `incarnation`, and `store.files`.
"""
