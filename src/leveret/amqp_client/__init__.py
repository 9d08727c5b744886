"""A small AMQP 0-9-1 client on asyncio, for the parts of Leveret that talk to another broker.

- `uri`       parse amqp:// and amqps:// addresses
- `client`    one connection with one channel

Shovels and the Spark sink use the client; `leveret perf` has its own sockets and uses `uri` only.
"""
