"""The benchmark: the same loads on Leveret and RabbitMQ, in turns, in one run.

- `scenarios`  the table of loads, and what Leveret must reach in each (`bounds`)
- `brokers`    a process of each broker, with ports and directories of its own
- `measure`    one load on one broker: rate, share, CPU per message, latency; `syncs`
- `backlog`    a million messages: memory, kill -9 and restart, drain
- `results`    rows and the JSON in which runs are kept, with `machine` facts
- `report`     the table for people and for the docs; `history` draws all runs
- `scaling`    curves: what a message costs as things grow in number

Only ratios of one run are worth something: absolute figures belong to the machine and its mood.
"""
