"""A load generator for AMQP brokers. It needs little CPU, so that a run measures the broker.

- `load`            `Load`: all settings of a run, such as producers, consumers, sizes and duration
- `flag_values`     parse sizes, schedules and KEY=VALUE pairs of the command line
- `protocol`        [C] encode publishes in prebuilt blocks, and parse frames without copying
- `confirms`        [C] how many messages a producer may send, and its publisher confirms
- `deliveries`      [C] count deliveries, measure their latency and collect acks
- `latency`         [C] histogram of latencies, exact to 3 %
- `pacing`          rates and sizes that change over time
- `client`          one blocking connection
- `worker`          a thread with one connection; `producer` and `consumer` are its two kinds
- `topology`        declare and delete the queues, exchange and bindings of a run
- `worker_process`  a process of producers or consumers
- `measurements`    reports of the processes, added up to rows and totals
- `run`             start the processes, collect their reports and return a `Result`
- `report`          results as text and as a page of charts (`chart`)

The modules marked [C] are compiled and do no I/O. `leveret perf` is the command for people.
`python -m leveret.perf --port 5672` prints one JSON object for programs.
"""
