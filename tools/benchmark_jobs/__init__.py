"""Measures jobs beside other queues, in one run on the same servers, by turns.

| nouns | |
| --- | --- |
| contender | One queue as its users use it: put in, take and finish, by one and by hundreds. |
| round | Every figure once, of every contender in turn; the report has the medians. |
| servers | Redis and PostgreSQL on ports of their own, which all contenders share. |

All clients run in this process, one after the other: what differs is the queue.
"""
