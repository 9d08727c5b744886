"""Compares jobs with other queues, in one run on the same servers, in turns.

| nouns | |
| --- | --- |
| contender | One queue as its users use it: enqueue, take and finish jobs, singly and in batches. |
| round | Measures every value once for every contender in turn; the report has the medians. |
| servers | Redis and PostgreSQL on ports of their own, which all contenders share. |

All clients run in this process, one after the other, so that only the queues differ.
"""
