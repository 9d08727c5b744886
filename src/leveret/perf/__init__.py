"""A load generator for AMQP brokers that costs little CPU, so that the broker is what is measured.

- `Load`        what to do: how many producers and consumers, sizes, windows, for how long
- `protocol`    [C] publishes in prebuilt blocks, and a parser that reads frames by index
- `Confirms`    [C] what a producer may still send
- `Deliveries`  [C] what a consumer received, how late, and the acks that it owes
- `Histogram`   [C] latencies in buckets of 3 %
- `Client`      one blocking connection; `Producer` and `Consumer` are threads around one
- `run`         producers in this process, consumers in a second one, the figures as a `Result`

The modules marked [C] are compiled and free of I/O. `python -m leveret.perf --port 5672` prints one
JSON object.
"""
