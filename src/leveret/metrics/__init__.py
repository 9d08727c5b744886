"""Metrics in Prometheus's text format, under RabbitMQ's names and our own.

family.py       a metric family: name, type, help text, group
queue_lines.py  values of queues and their text lines; compiled, because there may be many queues
queues.py       families of queues
sources.py      reads the broker, its connections, the log and the machine
node_family.py  a family of the node, and the function that reads it
node.py         families of the node itself
cluster.py      families of a node in a cluster, and the whole answer of a node that follows
traffic.py      families of messages that passed through the node
objects.py      families of channels, connections, exchanges and vhosts
text.py         formats names, labels and numbers
scrape.py       makes a whole answer, in slices
reference.py    prints the page docs/metrics.md
"""
