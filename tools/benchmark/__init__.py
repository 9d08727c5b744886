"""The benchmark: the same loads on Leveret and RabbitMQ, in turns, in one run.

- `scenarios`  the table of loads, and what Leveret must reach in each
- `brokers`    a process of each broker, with ports and directories of its own
- `measure`    one load on one broker: rate, share, CPU per message, latency
- `report`     the table for people and the JSON for later comparison

Only ratios of one run are worth something: absolute figures belong to the machine and its mood.
"""
