"""Compares the event bus with FastStream and with plain aio-pika, in turns, on the same brokers.

| nouns | |
| --- | --- |
| service | One program, written three times: it publishes an event, handles it, retries it. |
| round | Measures every value once for every service in turn; the report has the medians. |
| broker | Leveret and RabbitMQ, each a process of its own with the disk it syncs to. |

The three services keep the same promises: durable queues, persistent messages, confirms, a retry
after five seconds, and a dead letter after ten retries. `lines` of the report counts their code.
"""
