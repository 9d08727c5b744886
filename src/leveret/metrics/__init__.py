"""Metrics in Prometheus's text format, under RabbitMQ's names and our own.

family.py       what a family of metrics is
queue_lines.py  figures of queues, and their lines: the compiled part, made for many queues
queues.py       the families of queues
sources.py      what is read: the broker, its connections, the log, the machine
reading.py      how a family of the node is read
node.py         the families of the node itself
traffic.py      the families of what went through it
objects.py      the families of channels, connections, exchanges and vhosts
text.py         names, labels and numbers as text
scrape.py       a whole answer, in slices
reference.py    the page docs/metrics.md
"""
