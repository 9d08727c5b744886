"""The benchmark: run the same loads on Leveret and RabbitMQ, in turns.

- `scenarios`   the table of loads, with the bounds that Leveret must meet
- `measures`    what is measured, and `Bound`: a limit on a measured value
- `brokers`     start, stop and observe a process of each broker
- `measure`     run one load on one broker: rate, share, CPU per message, latency
- `sync_probe`  measure how long fdatasync takes while a load runs
- `scraping`    a load while another client reads metrics and the list of queues
- `backlog`     a million messages: memory, kill -9 and restart, drain
- `results`     rows, and the JSON files of saved runs, with facts of the `machine`
- `report`      the table for the terminal and for the docs; `history` draws all saved runs
- `scaling`     curves: CPU per message as queues, bindings or connections grow in number
- `profile`     CPU per message by cause, from stack samples

Compare only ratios within one run: absolute values depend on the machine and its other load.
"""
