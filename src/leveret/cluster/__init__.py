"""The cluster: what several nodes keep together.

- `raft`      the consensus of one group of nodes on one log; see `leveret.cluster.raft`
- `store`     the disk of all groups of a node, one log; see `leveret.cluster.store`
- `commands`  what can be done to a replicated queue, as bytes of an entry
- `machine`   the replicated queue: applies commands, the same on every node

Everything but `store.files` is pure: who hosts groups brings the disk, the network and the time.
"""
