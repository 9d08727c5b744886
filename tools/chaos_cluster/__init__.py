"""Takes nodes and the network away from a cluster under load, and accounts for every message.

- `actors`          publishers and consumers by pika and aio-pika, at any node
- `accounts`        the account of a queue with several consumers
- `load`            all clients of a run, and the figures at its end
- `jobs`            producers and workers of jobs as processes (`tools.chaos_jobs`)
- `faults`          what happens to nodes and cables in a round
- `namespaces`      a network of the kernel for the nodes, instead of cables
- `network_faults`  what happens to the packets of this network in a round
- `stream_audit`    judges what queries read from a stream
- `spark_reader`    a Spark query over this stream, again and again
- `run`             rounds of faults, drawn from a seed
- `scenarios`       the fourteen scenarios of RabbitMQ's Jepsen run
- `partitions`      runs these scenarios
"""
