"""Compares jobs with other queues, in one run on the same servers, in turns.

| nouns | |
| --- | --- |
| contender | One queue as its users use it. |
| raw | Calls that take one job and ack it, without a worker. Only some queues have such calls. |
| worker | The worker of a queue, with a task that does nothing. |
| round | Measures every value once for every contender in turn; the report has the medians. |
| servers | Redis and PostgreSQL on ports of their own, which all contenders share. |

All clients and workers run in this process, so that only the queues differ. *1 client* makes one
call after the other; *32 clients* are 32 such loops (threads, where a queue has no asyncio). The
times of single calls are those of the calls that give the rate of one client. A round begins when
the servers have done the work that the last one left to them.
"""
