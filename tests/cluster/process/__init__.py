"""Groups on real processes, over loopback, with real syncs, and with faults.

- `node`     the program: a node that hosts groups of replicated queues, with a port for clients
- `cluster`  starts such processes, with a proxy in every link, and knows who leads
- `clients`  publishers that send again what is not confirmed, consumers that settle
- `ledger`   counts, as Jepsen does: what was lost, doubled, delivered after its settle, reordered
- `faults`   what can be done to the cluster, and how long it takes to get over it
"""
