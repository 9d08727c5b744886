"""A load generator for AMQP brokers that costs little CPU, so that the broker is what is measured.

- `Load`        what to do: how many producers and consumers, sizes, windows, for how long
- `protocol`    [C] publishes in prebuilt blocks, and a parser that reads frames by index
- `Confirms`    [C] what a producer may still send, and how late confirms are
- `Deliveries`  [C] what a consumer received, how late, and the acks that it owes
- `Histogram`   [C] latencies in buckets of 3 %
- `schedule`    rates and sizes that change with time
- `Client`      one blocking connection; `Producer` and `Consumer` are threads around one
- `topology`    the queues, exchange and bindings of a run
- `agent`       a process of producers or consumers, and what it reports (`Sample`)
- `run`         the agents, their reports as rows and as a `Result`
- `chart`       a result as one page of HTML

The modules marked [C] are compiled and free of I/O. `leveret perf` is for people;
`python -m leveret.perf --port 5672` prints one JSON object.
"""
