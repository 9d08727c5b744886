"""Takes nodes and the network away from a cluster under load, and accounts for every message.

- `actors`  publishers and consumers by pika and aio-pika, at any node
- `faults`  what happens to nodes and cables in a round
- `jobs`    producers and workers of jobs as processes (`tools.chaos_jobs`)
- `run`     starts all of them, draws faults from a seed, and sums up
"""
