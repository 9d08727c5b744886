"""Kills and outages under load for the jobs service on Redis and PostgreSQL.

Nodes (`leveret serve`), workers and producers are processes. All of them are killed with -9 while
they work (`run.py`). Servers and nodes are frozen, Redis loses its memory and the connections to it
are cut, also while a shard is frozen (`outages.py`). Workers and producers write every request and
its answer to a file (`actor.py`), and nodes each ack that Redis alone has taken. In the end the
files are checked against each other (`ledger.py`). The account tells what happened to a job with a
fault, and around it (`stories.py`).
"""
