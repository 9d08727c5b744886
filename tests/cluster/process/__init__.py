"""Groups on real processes, over loopback, with real syncs, and with faults.

- `node`     the program: a node that hosts groups of replicated queues, with a port for clients
- `cluster`  starts the processes, with a proxy in every link, and knows the leader
- `clients`  publishers that repeat unconfirmed messages, consumers that settle
- `ledger`   counts like Jepsen: lost, duplicated, reordered, or delivered after the settle
- `faults`   the faults, and how long the cluster takes to recover from each
"""
