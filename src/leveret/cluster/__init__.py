"""The cluster: what several nodes keep together.

- `raft`      the consensus of one group of nodes on one log; see `leveret.cluster.raft`
- `host`      all groups of one node: one turn of writes, messages and answers for all of them
- `lease`     which nodes live
- `commands`  what can be done to a replicated queue, as bytes of an entry
- `machine`   the replicated queue: applies commands, the same on every node

Everything here is pure: who hosts groups brings the disk, the network and the time.
"""
